"""paho's client on the event loop: one connection at a time, and what happens on it.

paho keeps the state of the session (packet ids, what is to be sent again) and reads and writes the
packets; here its socket is watched by the loop, and its callbacks become futures and events.
Connecting is the one thing paho does by waiting, so that is done in a thread, and nothing else
touches paho meanwhile. Reading can be stopped, which is how a program that is behind holds up the
broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client.mqtt.endpoint import Endpoint
from penstock.client.mqtt.faults import Lost, refused

#: A broker that has stopped reading does not see us leave either.
CLOSE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 10.0
#: How often paho looks whether it is time for a ping.
TICK_SECONDS: Final = 1.0
#: How many messages the broker may send ahead of our acknowledgements.
RECEIVE_MAXIMUM: Final = 1000


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the broker says of itself when it lets us in."""

    session_present: bool
    receive_maximum: int
    maximum_qos: int
    maximum_bytes: int | None
    retains: bool
    identifiers: bool  #: it tells which subscription a message is for


class Events(Protocol):
    def arrived(self, packet: MQTTMessage) -> None: ...

    def acknowledged(self, packet_id: int, reason: ReasonCode) -> None: ...

    def lost(self, error: Lost) -> None: ...


class Wire:
    """Connects, and connects again, in the same session."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, events: Events) -> None:
        self._endpoint = endpoint
        self._events = events
        self._client = self._new_client(tls or endpoint.tls_context())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dialling: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[Greeting] | None = None
        self._left: asyncio.Future[None] | None = None
        self._granted: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._reading = True
        self._socket: int | None = None  #: the descriptor the loop watches
        self._tick: asyncio.TimerHandle | None = None
        self._up = False

    async def connect(self) -> Greeting:
        self._loop = asyncio.get_running_loop()
        self._greeting = self._loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._dialling is None or self._dialling.done():
                    self._dialling = self._loop.run_in_executor(None, self._dial)
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

    async def subscribe(self, pattern: str, qos: int, identifier: int | None) -> ReasonCode:
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
        granted: asyncio.Future[list[ReasonCode]] = asyncio.get_running_loop().create_future()
        self._granted[packet_id] = granted
        try:
            return (await granted)[0]
        finally:
            self._granted.pop(packet_id, None)

    def unsubscribe(self, pattern: str) -> None:
        self._client.unsubscribe(pattern)

    def acknowledge(self, packet: MQTTMessage) -> None:
        self._client.ack(packet.mid, packet.qos)

    def acknowledge_on_arrival(self, on: bool) -> None:
        self._client.manual_ack_set(not on)

    def read(self, on: bool) -> None:
        """Whether to take what the broker sends; pings wait as well, which it bears for a while."""
        if on is not self._reading:
            self._reading = on
            if self._socket is not None and self._loop is not None:
                if on:
                    self._loop.add_reader(self._socket, self._readable)
                else:
                    self._loop.remove_reader(self._socket)

    def forget_unacknowledged(self) -> None:
        """What was sent and not acknowledged will not be sent again."""
        self._client.drop_out_messages()

    async def disconnect(self) -> None:
        """Leave with a word, so that the broker keeps no will and no hope."""
        if not self._up or self._loop is None:
            return
        self.read(True)
        self._left = self._loop.create_future()
        self._client.disconnect()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._left

    def _new_client(self, tls: ssl.SSLContext | None) -> Client:
        endpoint = self._endpoint
        modern = endpoint.modern
        client = Client(
            CallbackAPIVersion.VERSION2,
            endpoint.client_id,
            clean_session=None if modern else not endpoint.lasting,
            protocol=MQTTProtocolVersion.MQTTv5 if modern else MQTTProtocolVersion.MQTTv311,
            transport="tcp" if endpoint.path is None else "websockets",
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if endpoint.user is not None:
            client.username_pw_set(endpoint.user, endpoint.password)
        if endpoint.path is not None:
            client.ws_set_options(endpoint.path)
        if tls is not None:
            client.tls_set_context(tls)
        client.connect_timeout = CONNECT_SECONDS
        client.max_inflight_messages_set(0)  # whoever sends keeps to the broker's own limit
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = lambda _client, _data, packet: self._events.arrived(packet)
        client.on_publish = lambda _client, _data, packet_id, reason, _properties: (
            self._events.acknowledged(packet_id, reason)
        )
        client.on_subscribe = self._on_subscribe
        client.on_socket_open = lambda _client, _data, sock: self._watch(self._opened, sock)
        client.on_socket_close = lambda _client, _data, sock: self._watch(self._closed, sock)
        client.on_socket_register_write = lambda _client, _data, sock: self._watch(
            self._want_to_write, sock
        )
        client.on_socket_unregister_write = lambda _client, _data, sock: self._watch(
            self._have_written, sock
        )
        return client

    def _dial(self) -> None:
        """In a thread: returns when CONNECT is on its way."""
        endpoint = self._endpoint
        if not endpoint.modern:
            self._client.connect(endpoint.host, endpoint.port, endpoint.keepalive)
            return
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        if endpoint.lasting:
            properties.SessionExpiryInterval = endpoint.session_expiry
        self._client.connect(
            endpoint.host,
            endpoint.port,
            endpoint.keepalive,
            clean_start=not endpoint.lasting,
            properties=properties,
        )

    # What paho says. It says some of it in the thread that connects.

    def _watch(self, change: Callable[[int], None], sock: Any) -> None:
        assert self._loop is not None
        descriptor: int = sock.fileno()
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            change(descriptor)
            return
        done = threading.Event()

        def there() -> None:
            change(descriptor)
            done.set()

        self._loop.call_soon_threadsafe(there)
        done.wait(CLOSE_SECONDS)

    def _opened(self, descriptor: int) -> None:
        assert self._loop is not None
        self._socket = descriptor
        self._reading = True
        self._loop.add_reader(descriptor, self._readable)
        self._tick = self._loop.call_later(TICK_SECONDS, self._ticked)

    def _closed(self, descriptor: int) -> None:
        assert self._loop is not None
        self._socket = None
        if self._tick is not None:
            self._tick.cancel()
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)

    def _want_to_write(self, descriptor: int) -> None:
        assert self._loop is not None
        self._loop.add_writer(descriptor, self._writable)

    def _have_written(self, descriptor: int) -> None:
        assert self._loop is not None
        if descriptor >= 0:
            self._loop.remove_writer(descriptor)

    def _readable(self) -> None:
        self._client.loop_read()
        # What TLS or the WebSocket has read ahead, the loop cannot see.
        while self._reading and self._socket is not None:
            pending = getattr(self._client.socket(), "pending", None)
            if pending is None or not pending():
                return
            self._client.loop_read()

    def _writable(self) -> None:
        self._client.loop_write()

    def _ticked(self) -> None:
        assert self._loop is not None
        self._tick = self._loop.call_later(TICK_SECONDS, self._ticked)
        if self._reading:  # else the answer to a ping could not be seen
            self._client.loop_misc()

    def _on_connect(
        self, _: Client, __: Any, flags: ConnectFlags, reason: ReasonCode, said: Properties | None
    ) -> None:
        if self._greeting is None or self._greeting.done():
            return
        if reason.is_failure:
            self._greeting.set_exception(refused(self._endpoint, reason))
            return
        self._up = True
        self._greeting.set_result(
            Greeting(
                session_present=flags.session_present,
                receive_maximum=getattr(said, "ReceiveMaximum", 0xFFFF),
                maximum_qos=getattr(said, "MaximumQoS", 2),
                maximum_bytes=getattr(said, "MaximumPacketSize", None),
                retains=bool(getattr(said, "RetainAvailable", 1)),
                identifiers=self._endpoint.modern
                and bool(getattr(said, "SubscriptionIdentifierAvailable", 1)),
            )
        )

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
        self, _: Client, __: Any, packet_id: int, reasons: list[ReasonCode], ___: object
    ) -> None:
        granted = self._granted.get(packet_id)
        if granted is not None and not granted.done():
            granted.set_result(reasons)
