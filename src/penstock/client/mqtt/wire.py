"""paho's client as coroutines and events: one connection at a time, and what happens on it.

paho keeps the state of the session (packet ids, what is to be sent again) and reads and writes the
packets, when the loop that watches its socket says so. Connecting is the one thing paho does by
waiting, so that is done in a thread, and nothing else touches paho meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final, Protocol

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client.mqtt.dial import (
    CONNECT_SECONDS,
    Greeting,
    dial,
    new_client,
    read_greeting,
)
from penstock.client.mqtt.endpoint import Endpoint
from penstock.client.mqtt.faults import Lost, refused
from penstock.client.mqtt.watch import Watch

#: A broker that has stopped reading does not see us leave either.
CLOSE_SECONDS: Final = 3.0


class Events(Protocol):
    def greeted(self, greeting: Greeting) -> None:
        """A connection is there. What the broker has kept may arrive before `connect` returns."""

    def arrived(self, packet: MQTTMessage) -> None: ...

    def acknowledged(self, packet_id: int, reason: ReasonCode) -> None: ...

    def lost(self, error: Lost) -> None: ...


class Wire:
    """Connects, and connects again, in the same session."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, events: Events) -> None:
        self._endpoint = endpoint
        self._events = events
        self._client = new_client(endpoint, tls)
        self._watch = Watch(self._client)
        self._dialling: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[Greeting] | None = None
        self._left: asyncio.Future[None] | None = None
        self._granted: dict[int, asyncio.Future[tuple[ReasonCode, str]]] = {}
        self._up = False
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _client, _data, packet: events.arrived(packet)
        self._client.on_publish = lambda _client, _data, packet_id, reason, _properties: (
            events.acknowledged(packet_id, reason)
        )

    async def connect(self) -> Greeting:
        loop = asyncio.get_running_loop()
        self._watch.use(loop)
        self._greeting = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._dialling is None or self._dialling.done():
                    self._dialling = loop.run_in_executor(None, dial, self._client, self._endpoint)
                await asyncio.shield(self._dialling)
                return await self._greeting
        except TimeoutError:
            if self._dialling is not None and self._dialling.done():
                self._client.disconnect()  # the socket closes when this is written
            raise
        finally:
            self._greeting = None

    def publish(
        self, topic: str, body: bytes, qos: int, retain: bool, properties: Properties | None
    ) -> int:
        return self._client.publish(topic, body, qos, retain, properties).mid

    async def subscribe(
        self, pattern: str, qos: int, identifier: int | None
    ) -> tuple[ReasonCode, str]:
        """What the broker grants, and what it says about it."""
        if self._endpoint.modern:
            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            if identifier is not None:
                properties.SubscriptionIdentifier = identifier
            options = SubscribeOptions(qos=qos)
            _, packet_id = self._client.subscribe([(pattern, options)], properties=properties)
        else:
            _, packet_id = self._client.subscribe(pattern, qos)
        if packet_id is None:
            raise Lost("the connection is closed")
        granted: asyncio.Future[tuple[ReasonCode, str]]
        granted = asyncio.get_running_loop().create_future()
        self._granted[packet_id] = granted
        try:
            return await granted
        finally:
            self._granted.pop(packet_id, None)

    def unsubscribe(self, pattern: str) -> None:
        self._client.unsubscribe(pattern)

    def acknowledge(self, packet: MQTTMessage) -> None:
        self._client.ack(packet.mid, packet.qos)

    def acknowledge_on_arrival(self, on: bool) -> None:
        self._client.manual_ack_set(not on)

    def read(self, on: bool) -> None:
        """Whether to take what the broker sends."""
        self._watch.read(on)

    def forget_unacknowledged(self) -> None:
        """What was sent and not acknowledged will not be sent again."""
        self._client.drop_out_messages()

    async def disconnect(self) -> None:
        """Leave with a word, so that the broker does not wait for us."""
        if not self._up:
            return
        self.read(True)
        self._left = asyncio.get_running_loop().create_future()
        self._client.disconnect()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._left

    # What paho says.

    def _on_connect(
        self, _: Client, __: Any, flags: ConnectFlags, reason: ReasonCode, said: Properties | None
    ) -> None:
        if self._greeting is None or self._greeting.done():
            return
        if reason.is_failure:
            self._greeting.set_exception(refused(self._endpoint, reason))
            return
        self._up = True
        greeting = read_greeting(flags.session_present, said, self._endpoint.modern)
        self._events.greeted(greeting)
        self._greeting.set_result(greeting)

    def _on_disconnect(
        self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: object
    ) -> None:
        told = flags.is_disconnect_packet_from_server
        words = str(reason).lower() if told else "the connection was closed"
        lost = Lost(words, reason.value if told else 0)
        up, self._up = self._up, False
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(lost)
        for granted in self._granted.values():
            if not granted.done():
                granted.set_exception(lost)
        if self._left is not None and not self._left.done():
            self._left.set_result(None)
        elif up:
            self._events.lost(lost)

    def _on_subscribe(
        self, _: Client, __: Any, packet_id: int, reasons: list[ReasonCode], said: object
    ) -> None:
        granted = self._granted.get(packet_id)
        if granted is not None and not granted.done():
            granted.set_result((reasons[0], getattr(said, "ReasonString", "")))
