"""paho's client as coroutines and events: one connection at a time, and what happens on it.

paho keeps the state of the session (packet ids, what is to be sent again) and reads and writes the
packets, when the loop that watches its socket says so. Connecting is the one thing paho does by
waiting, so that is done in a thread, and nothing else touches paho meanwhile.
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
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client.mqtt.endpoint import (
    UNSPECIFIED_ERROR,
    MqttConnectionLost,
    MqttEndpoint,
    connack_error,
)

#: A broker that has stopped reading does not see us leave either.
CLOSE_SECONDS: Final = 3.0


class MqttConnectionEvents(Protocol):
    def on_connack(self, connack: ConnackProperties) -> None:
        """A connection is there. What the broker has kept may arrive before `connect` returns."""

    def arrived(self, packet: MQTTMessage) -> None: ...

    def acknowledged(self, packet_id: int, reason: ReasonCode) -> None: ...

    def lost(self, error: MqttConnectionLost) -> None: ...


class PahoConnection:
    """Connects, and connects again, in the same session."""

    def __init__(
        self, endpoint: MqttEndpoint, tls: ssl.SSLContext | None, events: MqttConnectionEvents
    ) -> None:
        self._endpoint = endpoint
        self._events = events
        self._client = create_paho_client(endpoint, tls)
        self._watch = SocketWatcher(self._client)
        self._dialling: asyncio.Future[None] | None = None
        self._greeting: asyncio.Future[ConnackProperties] | None = None
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

    async def connect(self) -> ConnackProperties:
        loop = asyncio.get_running_loop()
        self._watch.use(loop)
        self._greeting = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._dialling is None or self._dialling.done():
                    self._dialling = loop.run_in_executor(
                        None, connect_paho_client, self._client, self._endpoint
                    )
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
        if self._endpoint.is_v5:
            properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
            if identifier is not None:
                properties.SubscriptionIdentifier = identifier
            options = SubscribeOptions(qos=qos)
            _, packet_id = self._client.subscribe([(pattern, options)], properties=properties)
        else:
            _, packet_id = self._client.subscribe(pattern, qos)
        if packet_id is None:
            raise MqttConnectionLost("the connection is closed")
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
        self,
        _: Client,
        __: Any,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if self._greeting is None or self._greeting.done():
            return
        if reason.is_failure:
            self._greeting.set_exception(connack_error(self._endpoint, reason))
            return
        self._up = True
        connack = read_connack(flags.session_present, properties, self._endpoint.is_v5)
        self._events.on_connack(connack)
        self._greeting.set_result(connack)

    def _on_disconnect(
        self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: object
    ) -> None:
        told = flags.is_disconnect_packet_from_server
        words = str(reason).lower() if told else "the connection was closed"
        lost = MqttConnectionLost(words, reason.value if told else 0)
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
        self, _: Client, __: Any, packet_id: int, reasons: list[ReasonCode], properties: object
    ) -> None:
        granted = self._granted.get(packet_id)
        if granted is not None and not granted.done():
            granted.set_result((reasons[0], getattr(properties, "ReasonString", "")))


# paho's client, made for an endpoint and connected to it; and what the broker greets us with.

CONNECT_SECONDS: Final = 10.0
#: What a packet's length has room for.
MAX_PACKET_BYTES: Final = 0x0FFF_FFFF
#: How many messages the broker may send ahead of our acknowledgements.
RECEIVE_MAXIMUM: Final = 1000


@dataclass(frozen=True, slots=True)
class ConnackProperties:
    """What the broker says of itself when it lets us in."""

    session_present: bool
    receive_maximum: int
    maximum_qos: int
    maximum_bytes: int
    retains: bool
    identifiers: bool  #: it tells which subscription a message is for


def create_paho_client(endpoint: MqttEndpoint, tls: ssl.SSLContext | None) -> Client:
    is_v5 = endpoint.is_v5
    client = _PahoClient(
        CallbackAPIVersion.VERSION2,
        endpoint.client_id,
        clean_session=None if is_v5 else not endpoint.lasting,
        protocol=MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311,
        transport="tcp" if endpoint.path is None else "websockets",
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if endpoint.user is not None:
        client.username_pw_set(endpoint.user, endpoint.password)
    if endpoint.path is not None:
        client.ws_set_options(endpoint.path)
    context = tls or endpoint.tls_context()
    if endpoint.tls and context is not None:
        client.tls_set_context(context)
    client.connect_timeout = CONNECT_SECONDS
    client.max_inflight_messages_set(0)  # whoever sends keeps to the broker's own limit
    return client


def connect_paho_client(client: Client, endpoint: MqttEndpoint) -> None:
    """Waits for the network; returns when CONNECT is on its way."""
    if not endpoint.is_v5:
        client.connect(endpoint.host, endpoint.port, endpoint.keepalive)
        return
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    if endpoint.lasting:
        properties.SessionExpiryInterval = endpoint.session_expiry
    client.connect(
        endpoint.host,
        endpoint.port,
        endpoint.keepalive,
        clean_start=not endpoint.lasting,
        properties=properties,
    )


def read_connack(
    session_present: bool, properties: Properties | None, is_v5: bool
) -> ConnackProperties:
    return ConnackProperties(
        session_present=session_present,
        receive_maximum=getattr(properties, "ReceiveMaximum", 0xFFFF),
        maximum_qos=getattr(properties, "MaximumQoS", 2),
        maximum_bytes=getattr(properties, "MaximumPacketSize", MAX_PACKET_BYTES),
        retains=bool(getattr(properties, "RetainAvailable", 1)),
        identifiers=is_v5 and bool(getattr(properties, "SubscriptionIdentifierAvailable", 1)),
    )


class _PahoClient(Client):
    """paho's, but for a message of quality 2 that the broker refuses.

    paho does not read why and goes on as if nothing had happened, and then the end of that looks
    like success. A refusal is the last word on a message.
    """

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        packet_id = int.from_bytes(packet[:2], "big")
        refusal = self.protocol == MQTTProtocolVersion.MQTTv5 and packet[2:3] >= bytes(
            [UNSPECIFIED_ERROR]
        )
        if not refusal or packet_id not in self._out_messages:
            return super()._handle_pubrec()
        reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
        properties = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
        return self._do_on_publish(packet_id, reason, properties)


# The event loop's eye on paho's socket.
#
# paho says when it has a socket, when it has something to write and when it is done; the loop says
# when there is something to read. Some of it paho says in the thread that connects, and waits there
# until the loop knows. Reading can be stopped, which holds up the broker.

#: How often paho looks whether it is time for a ping.
TICK_SECONDS: Final = 1.0
#: A loop that has stopped will not answer.
HANDOVER_SECONDS: Final = 3.0


class SocketWatcher:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: int | None = None  #: the descriptor the loop watches
        self._reading = True
        self._tick: asyncio.TimerHandle | None = None
        client.on_socket_open = self._relay(self._opened)
        client.on_socket_close = self._relay(self._closed)
        client.on_socket_register_write = self._relay(self._want_to_write)
        client.on_socket_unregister_write = self._relay(self._have_written)

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def read(self, on: bool) -> None:
        """Whether to take what the broker sends; pings wait as well, which it bears for a while."""
        if on is self._reading:
            return
        self._reading = on
        if self._socket is None or self._loop is None:
            return
        if on:
            self._loop.add_reader(self._socket, self._readable)
            self._loop.call_soon(self._read_ahead)
        else:
            self._loop.remove_reader(self._socket)

    def _relay(self, change: Callable[[asyncio.AbstractEventLoop, int], None]) -> Any:
        """A callback of paho's that has the change made in the loop's own thread."""

        def changed(_client: Client, _data: object, sock: Any) -> None:
            loop = self._loop
            assert loop is not None
            descriptor: int = sock.fileno()
            if _running_loop() is loop:
                change(loop, descriptor)
                return
            done = threading.Event()

            def there() -> None:
                change(loop, descriptor)
                done.set()

            loop.call_soon_threadsafe(there)
            done.wait(HANDOVER_SECONDS)

        return changed

    def _opened(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._socket = descriptor
        self._reading = True
        loop.add_reader(descriptor, self._readable)
        self._tick = loop.call_later(TICK_SECONDS, self._ticked, loop)

    def _closed(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._socket = None
        if self._tick is not None:
            self._tick.cancel()
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    def _want_to_write(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        loop.add_writer(descriptor, self._client.loop_write)

    def _have_written(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        if descriptor >= 0:
            loop.remove_writer(descriptor)

    def _readable(self) -> None:
        self._client.loop_read()
        self._read_ahead()

    def _read_ahead(self) -> None:
        """What TLS or the WebSocket has taken from the socket already, the loop cannot see."""
        while self._reading and self._socket is not None:
            pending = getattr(self._client.socket(), "pending", None)
            if pending is None or not pending():
                return
            self._client.loop_read()

    def _ticked(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick = loop.call_later(TICK_SECONDS, self._ticked, loop)
        if self._reading:  # else the answer to a ping could not be seen
            self._client.loop_misc()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
