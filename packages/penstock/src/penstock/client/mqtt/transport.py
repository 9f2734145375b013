"""paho's client on an event loop: one connection at a time, as coroutines and events.

paho holds the session state (packet ids, unacknowledged messages) and reads and writes packets when
the loop reports that its socket is ready. Connecting blocks, so it runs in a thread, and nothing
else uses paho meanwhile.
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
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client.mqtt.endpoint import (
    MqttConnectionLost,
    MqttEndpoint,
    connack_error,
)
from penstock.wire.mqtt.reason_codes import ReasonCode

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a disconnect either.
CLOSE_SECONDS: Final = 3.0
#: The largest packet that the length field allows.
MAX_PACKET_BYTES: Final = 0x0FFF_FFFF
#: How many unacknowledged messages the broker may send.
RECEIVE_MAXIMUM: Final = 1000
#: How often paho checks whether a ping is due.
TICK_SECONDS: Final = 1.0
#: A stopped loop does not answer.
HANDOVER_SECONDS: Final = 3.0


class MqttConnectionEvents(Protocol):
    def on_connack(self, connack: ConnackProperties) -> None:
        """Messages of a resumed session may arrive before `connect` returns."""

    def arrived(self, packet: MQTTMessage) -> None: ...

    def acknowledged(self, packet_id: int, reason: PahoReasonCode) -> None: ...

    def lost(self, error: MqttConnectionLost) -> None: ...


class PahoConnection:
    """Connects and reconnects in the same session."""

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
        self._granted: dict[int, asyncio.Future[tuple[PahoReasonCode, str]]] = {}
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
    ) -> tuple[PahoReasonCode, str]:
        """Returns the reason code and the reason string of the SUBACK."""
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
        granted: asyncio.Future[tuple[PahoReasonCode, str]]
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
        self._watch.read(on)

    def forget_unacknowledged(self) -> None:
        """Unacknowledged messages will not be sent again."""
        self._client.drop_out_messages()

    async def disconnect(self) -> None:
        """Sends DISCONNECT and waits for the broker to close the connection."""
        if not self._up:
            return
        self.read(True)
        self._left = asyncio.get_running_loop().create_future()
        self._client.disconnect()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._left

    # Callbacks of paho.

    def _on_connect(
        self,
        _: Client,
        __: Any,
        flags: ConnectFlags,
        reason: PahoReasonCode,
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
        self, _: Client, __: Any, flags: DisconnectFlags, reason: PahoReasonCode, ___: object
    ) -> None:
        sent = flags.is_disconnect_packet_from_server
        text = str(reason).lower() if sent else "the connection was closed"
        lost = MqttConnectionLost(text, reason.value if sent else 0)
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
        self, _: Client, __: Any, packet_id: int, reasons: list[PahoReasonCode], properties: object
    ) -> None:
        granted = self._granted.get(packet_id)
        if granted is not None and not granted.done():
            granted.set_result((reasons[0], getattr(properties, "ReasonString", "")))


@dataclass(frozen=True, slots=True)
class ConnackProperties:
    """The limits of the broker."""

    session_present: bool
    receive_maximum: int
    maximum_qos: int
    maximum_bytes: int
    retains: bool
    identifiers: bool  #: messages have subscription identifiers


def create_paho_client(endpoint: MqttEndpoint, tls: ssl.SSLContext | None) -> Client:
    is_v5 = endpoint.is_v5
    client = _PahoClient(
        CallbackAPIVersion.VERSION2,
        endpoint.client_id,
        clean_session=None if is_v5 else not endpoint.is_persistent,
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
    client.max_inflight_messages_set(0)  # the publisher respects the receive maximum
    return client


def connect_paho_client(client: Client, endpoint: MqttEndpoint) -> None:
    """Blocks until CONNECT is sent."""
    *others, last = endpoint.hosts()
    for host, port in others:
        with contextlib.suppress(OSError):
            _connect_paho_client(client, endpoint, host, port)
            return
    _connect_paho_client(client, endpoint, *last)


def _connect_paho_client(client: Client, endpoint: MqttEndpoint, host: str, port: int) -> None:
    if not endpoint.is_v5:
        client.connect(host, port, endpoint.keepalive)
        return
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    if endpoint.is_persistent:
        properties.SessionExpiryInterval = endpoint.session_expiry
    client.connect(
        host,
        port,
        endpoint.keepalive,
        clean_start=not endpoint.is_persistent,
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
    """Fails a message with QoS 2 that the broker refuses in its PUBREC.

    paho ignores the reason code and completes the exchange, which then looks like success.
    """

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        packet_id = int.from_bytes(packet[:2], "big")
        refusal = self.protocol == MQTTProtocolVersion.MQTTv5 and packet[2:3] >= bytes(
            [ReasonCode.UNSPECIFIED_ERROR]
        )
        if not refusal or packet_id not in self._out_messages:
            return super()._handle_pubrec()
        reason = PahoReasonCode(PacketTypes.PUBREC, identifier=packet[2])
        properties = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
        return self._do_on_publish(packet_id, reason, properties)


class SocketWatcher:
    """Registers paho's socket with the event loop.

    Callbacks that paho calls in the connecting thread wait until the loop has handled them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: int | None = None  #: the registered descriptor
        self._reading = True
        self._tick: asyncio.TimerHandle | None = None
        client.on_socket_open = self._relay(self._opened)
        client.on_socket_close = self._relay(self._closed)
        client.on_socket_register_write = self._relay(self._want_to_write)
        client.on_socket_unregister_write = self._relay(self._have_written)

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def read(self, on: bool) -> None:
        """Pause or resume reading. Pings pause as well, up to the keep-alive interval."""
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
        """A callback for paho that runs `change` in the thread of the loop."""

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
        """Reads input that TLS or the WebSocket has buffered, which the loop cannot see."""
        while self._reading and self._socket is not None:
            pending = getattr(self._client.socket(), "pending", None)
            if pending is None or not pending():
                return
            self._client.loop_read()

    def _ticked(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick = loop.call_later(TICK_SECONDS, self._ticked, loop)
        if self._reading:  # otherwise the PINGRESP would not be read
            self._client.loop_misc()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
