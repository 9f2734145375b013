"""The asking side of request/reply, as MQTT 5 has it.

A request is published to the topic named by the service, with a response topic of this client's own
and correlation data that tell the answers apart. One that nobody serves is known at once where the
broker says that nobody is subscribed. Answers come with quality 0: they cannot be held up by what
else waits to be acknowledged, and one that is lost with its connection is asked for again, with the
same message id. So a service may see a request twice.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final
from uuid import uuid4

from paho.mqtt.client import MQTTMessage

from penstock.client.errors import FabricClosed, NoReply, NoService
from penstock.client.fabric import Headers
from penstock.client.message import Body, ReceivedMessage, encode_body
from penstock.client.mqtt.message import (
    MqttDelivery,
    SharedAcknowledgement,
    encode_properties,
    read_error,
    read_message,
)
from penstock.client.mqtt.publisher import UnacknowledgedMessage
from penstock.client.mqtt.session import MqttClientSession
from penstock.core.errors import NoRoute, PenstockError

RESPONSE_TOPIC_PREFIX: Final = "penstock/replies"
#: After a break the service has to come back as well; meanwhile its absence proves nothing.
RETRY_SECONDS: Final = 0.1


class _ConnectionBroken(Exception):
    """The connection went, and the answer may have gone with it."""


class MqttRequester:
    """Asks services, any number of questions at a time, with one response topic."""

    def __init__(self, session: MqttClientSession) -> None:
        self._session = session
        self._topic = f"{RESPONSE_TOPIC_PREFIX}/{uuid4().hex}"
        self._listening: asyncio.Task[None] | None = None
        self._unanswered: dict[bytes, asyncio.Future[MQTTMessage]] = {}

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        self._session.connection.expect()
        try:
            async with asyncio.timeout(timeout):
                packet = await self._ask(service, body, headers, timeout)
        except TimeoutError:
            raise NoReply(f"{service!r} has not answered within {timeout:g} s") from None
        finally:
            self._session.connection.met()
        answer = read_message(packet, MqttDelivery(packet, None, self._session.publisher))
        if (failure := read_error(answer)) is not None:
            raise failure
        return answer

    def take(self, packet: MQTTMessage, receipt: SharedAcknowledgement | None) -> None:
        if receipt is not None:
            receipt.settle()
        answer = self._unanswered.get(getattr(packet.properties, "CorrelationData", b""))
        if answer is not None and not answer.done():
            answer.set_result(packet)

    def renewed(self, session_present: bool) -> None:
        self._end(_ConnectionBroken())

    def failed(self, error: PenstockError) -> None:
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the answer came")
        self._end(error)

    async def _ask(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> MQTTMessage:
        content, content_type = encode_body(body)
        correlation = uuid4().hex.encode()
        properties = encode_properties(
            is_v5=self._session.connection.endpoint.is_v5,
            content_type=content_type,
            headers=headers,
            ttl=timeout,
            message_id=uuid4().hex,
            reply_to=self._topic,
            correlation=correlation,
        )
        await self._listen()
        broken = False
        while True:
            await self._session.connection.ready()
            answer: asyncio.Future[MQTTMessage] = asyncio.get_running_loop().create_future()
            self._unanswered[correlation] = answer
            try:
                sending = await self._session.publisher.post(
                    UnacknowledgedMessage(service, content, properties, mandatory=True)
                )
                sending.add_done_callback(partial(_unsent, answer))
                return await answer
            except NoRoute:
                if not broken:
                    raise NoService(f"nobody serves {service!r}") from None
                await asyncio.sleep(RETRY_SECONDS)
            except _ConnectionBroken:
                broken = True
            finally:
                del self._unanswered[correlation]

    async def _listen(self) -> None:
        if self._listening is None:
            adding = self._session.subscriptions.add(self, (self._topic,), 0)
            self._listening = asyncio.create_task(adding)
        try:
            await asyncio.shield(self._listening)
        except PenstockError:
            self._listening = None  # the next request tries again
            self._session.subscriptions.remove(self)
            raise

    def _end(self, error: Exception) -> None:
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


def _unsent(answer: asyncio.Future[MQTTMessage], sent: asyncio.Future[None]) -> None:
    """A request that did not get through is as good as answered, by its error."""
    if not sent.cancelled() and (error := sent.exception()) and not answer.done():
        answer.set_exception(error)
