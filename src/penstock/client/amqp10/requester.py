"""The asking side of request/reply.

Requests go to the queue named by the service, which has to be there: a service that nobody offers
is known at once. Answers come to a node that the broker makes for us, which goes with the
connection; so when that breaks, what is unanswered is asked again on the next, with the same
message id. A service may see a request twice, as it may when one of its servers dies at work.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from penstock.client import message as client
from penstock.client.amqp10.contents import id_text, write
from penstock.client.amqp10.delivery import Delivery, read_error, read_message
from penstock.client.amqp10.inlet import Inlet
from penstock.client.amqp10.outlet import Outlet
from penstock.client.amqp10.replies import Replies
from penstock.client.amqp10.sources import Answers
from penstock.client.amqp10.trunk import Trunk
from penstock.client.body import Body, encode_body
from penstock.client.errors import FabricClosed, NoReply, NoService
from penstock.client.fabric import Headers
from penstock.core.errors import NoRoute, NotFound, PenstockError
from penstock.wire.amqp10.links import Incoming
from penstock.wire.amqp10.message import Message, Properties
from penstock.wire.amqp10.session import Session
from penstock.wire.amqp10.states import State

PREFETCH: Final = 500
#: After a break the service has to come back as well; meanwhile its absence proves nothing.
RETURN_SECONDS: Final = 0.1


class _Broken(Exception):
    """The connection went, and the answer may have gone with it."""


class Requester:
    """Asks services, any number of questions at a time, with one node for the answers."""

    def __init__(self, trunk: Trunk, replies: Replies) -> None:
        self._trunk = trunk
        self._replies = replies
        self._services: dict[str, Outlet] = {}
        self._answers: Inlet | None = None
        self._reader: asyncio.Task[None] | None = None
        self._unanswered: dict[str, asyncio.Future[Message]] = {}

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> client.Message:
        try:
            async with asyncio.timeout(timeout):
                answer = await self._ask(service, body, headers, timeout)
        except TimeoutError:
            raise NoReply(f"{service!r} has not answered within {timeout:g} s") from None
        read = read_message(answer, Delivery(answer, None, _nothing, self._replies))
        if (failure := read_error(answer, read)) is not None:
            raise failure
        return read

    async def close(self) -> None:
        self._end(FabricClosed("the fabric was closed before the answer came"))
        self._trunk.leave(self)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._answers is not None:
            await self._answers.close()
        for outlet in self._services.values():
            await outlet.close()

    # What the trunk says: answers that are on their way when a connection goes will not come.

    def resume(self, session: Session) -> None:
        """The link for answers is the inlet's to attach."""

    def paused(self) -> None:
        self._end(_Broken())

    def failed(self, error: PenstockError) -> None:
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the answer came")
        self._end(error)

    async def _ask(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> Message:
        content, content_type = encode_body(body)
        message_id, correlation = uuid4().hex, uuid4().hex
        broken = False
        while True:
            answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            self._unanswered[correlation] = answer
            try:
                properties = Properties(
                    message_id=message_id,
                    reply_to=await self._listen(),
                    correlation_id=correlation,
                    content_type=content_type,
                )
                payload = write(content, properties, headers=headers, ttl=timeout, durable=False)
                sent = await self._outlet(service).post(payload)
                await asyncio.wait((sent, answer), return_when=asyncio.FIRST_COMPLETED)
                if sent.done():
                    sent.result()
                return await answer
            except (NotFound, NoRoute):
                if not broken:
                    raise NoService(f"nobody serves {service!r}") from None
                await asyncio.sleep(RETURN_SECONDS)
            except _Broken:
                broken = True
            finally:
                del self._unanswered[correlation]

    async def _listen(self) -> str:
        """The address that answers come to."""
        if self._answers is None:
            self._answers = inlet = Inlet(self._trunk, Answers(PREFETCH), self._replies)
            self._trunk.watch(self)
            self._reader = asyncio.create_task(self._read(inlet))
        await self._answers.open()
        return self._answers.address

    async def _read(self, inlet: Inlet) -> None:
        try:
            while True:
                message, _ = await inlet.take()
                asked = message.properties
                correlation = None if asked is None else id_text(asked.correlation_id)
                answer = self._unanswered.get(correlation or "")
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except PenstockError as error:
            self._answers = None  # the next request tries again
            self._trunk.leave(self)
            self._end(error)

    def _outlet(self, service: str) -> Outlet:
        outlet = self._services.get(service)
        if outlet is None:
            address = f"/amq/queue/{quote(service, safe='')}"
            outlet = self._services[service] = Outlet(self._trunk, address, mandatory=True)
        return outlet

    def _end(self, error: Exception) -> None:
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


def _nothing(delivery: Incoming, state: State) -> None:
    """An answer needs no answer."""
