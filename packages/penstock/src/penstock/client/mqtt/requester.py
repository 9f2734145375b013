"""Requests over MQTT 5.

A request is published to the topic named as the service, with a response topic and correlation
data. If the broker reports that no client is subscribed, no program serves it. Replies have QoS 0,
so they do not wait for other acknowledgements; the request is repeated if its reply is lost.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final
from uuid import uuid4

from paho.mqtt.client import MQTTMessage

from penstock.client.message import Body, Headers, ReceivedMessage, encode_body
from penstock.client.mqtt.message import (
    TYPE,
    MqttDelivery,
    SharedAcknowledgement,
    encode_properties,
    read_message,
)
from penstock.client.mqtt.publisher import UnacknowledgedMessage
from penstock.client.mqtt.session import MqttClientSession
from penstock.client.requester import PendingRequests, ServiceRequest, fail_reply
from penstock.core.errors import PenstockError

RESPONSE_TOPIC_PREFIX: Final = "penstock/replies"


class MqttRequester:
    """Sends requests, any number at a time, with one response topic."""

    def __init__(self, session: MqttClientSession) -> None:
        self._requests = PendingRequests(self._send)
        self._session = session
        self._topic = f"{RESPONSE_TOPIC_PREFIX}/{uuid4().hex}"
        self._subscription: asyncio.Task[None] | None = None

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        self._session.connection.expect()
        try:
            return await self._requests.request(service, body, headers, timeout)
        finally:
            self._session.connection.received()

    def take(self, packet: MQTTMessage, receipt: SharedAcknowledgement | None) -> None:
        if receipt is not None:
            receipt.settle()
        reply = read_message(packet, MqttDelivery(packet, None, self._session.publisher))
        self._requests.received(reply.correlation_id or "", reply, reply.headers.get(TYPE))

    def renewed(self, session_present: bool) -> None:
        self._requests.interrupted()

    def failed(self, error: PenstockError) -> None:
        self._requests.failed(error)

    async def _send(self, request: ServiceRequest, reply: asyncio.Future[ReceivedMessage]) -> None:
        content, content_type = encode_body(request.body)
        properties = encode_properties(
            is_v5=self._session.connection.endpoint.is_v5,
            content_type=content_type,
            headers=request.headers,
            ttl=request.timeout,
            message_id=request.message_id,
            reply_to=self._topic,
            correlation=request.correlation_id.encode(),
        )
        await self._subscribe()
        await self._session.connection.ready()
        sent = await self._session.publisher.post(
            UnacknowledgedMessage(request.service, content, properties, mandatory=True)
        )
        sent.add_done_callback(partial(_on_sent, reply))

    async def _subscribe(self) -> None:
        if self._subscription is None:
            adding = self._session.subscriptions.add(self, (self._topic,), 0)
            self._subscription = asyncio.create_task(adding)
        try:
            await asyncio.shield(self._subscription)
        except PenstockError:
            self._subscription = None  # the next request tries again
            self._session.subscriptions.remove(self)
            raise


def _on_sent(reply: asyncio.Future[ReceivedMessage], sent: asyncio.Future[None]) -> None:
    if not sent.cancelled() and (error := sent.exception()) is not None:
        fail_reply(reply, error)
