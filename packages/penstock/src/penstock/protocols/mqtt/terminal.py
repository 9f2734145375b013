"""The MQTT terminal: one socket and one client, of version 3.1, 3.1.1 or 5.0.

The packet reader (`wire/mqtt`) passes publications to `publish.py`, and other packets to the
terminal: CONNECT is `connect.py`, SUBSCRIBE and UNSUBSCRIBE `subscribe.py`. Output, and the
contract with drivers, is `writer.py`; sessions and wills are `sessions.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    connection_name,
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.contract import Channel, Message
from penstock.broker.flow_control import ReadFlowControl
from penstock.broker.host import Host
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.timer_wheel import TimerBucket
from penstock.protocols.connection import (
    CLOSE_SECONDS,
    abort_handshake,
    describe_connection,
    describe_consumer,
    finish_read,
)
from penstock.protocols.mqtt.connect import ConnectHandler
from penstock.protocols.mqtt.publish import NOT_CONNECTED, PublishHandler
from penstock.protocols.mqtt.sessions import MqttSessionRegistry
from penstock.protocols.mqtt.subscribe import handle_subscribe, handle_unsubscribe
from penstock.protocols.mqtt.sys_topics import SysTopics
from penstock.protocols.mqtt.writer import EncodedPacketCache, MqttWriter
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES
from penstock.wire.mqtt.fields import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from penstock.wire.mqtt.packets import (
    PINGRESP_PACKET,
    decode_auth,
    decode_disconnect,
    encode_acknowledgement,
    encode_connack,
    encode_disconnect,
)
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reader import PacketReader
from penstock.wire.mqtt.reason_codes import CONNACK_RETURN_CODES, MqttError, ReasonCode

if TYPE_CHECKING:
    from penstock.broker.contract import SessionQueue
    from penstock.protocols.mqtt.sessions import MqttAccess, WillMessage


#: The largest CONNECT: five fields of 64 KiB, and properties.
CONNECT_MAX_BYTES: Final = 512 * 1024

#: The connection ends after this many keep-alive intervals without a packet, as the standard says.
KEEP_ALIVE_FACTOR: Final = 1.5

PROTOCOL_NAMES: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5.0"}

#: The size of an acknowledgement without its reason string.
ACKNOWLEDGEMENT_BYTES: Final = 16

_log = get_logger("penstock.mqtt")


class MqttProtocol:
    """What the connections of MQTT of one broker share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.packet_cache = EncodedPacketCache()
        self.headers: dict[
            int, bytes
        ] = {}  #: content headers without properties, by size and persistence
        self._sessions: dict[str, MqttSessionRegistry] = {}
        for vhost in host.vhosts.values():
            self.sessions(vhost)
        self._sys = SysTopics(host, self._sessions)
        self._sys.start()

    def terminal(self) -> asyncio.Protocol:
        return MqttTerminal(self)

    def sessions(self, vhost: VirtualHost) -> MqttSessionRegistry:
        found = self._sessions.get(vhost.name)
        if found is None or found.vhost is not vhost:  # deleted and added again
            if found is not None:
                found.close()
            found = self._sessions[vhost.name] = MqttSessionRegistry(vhost, self.host.users)
        return found

    def close(self) -> None:
        self._sys.stop()
        for sessions in self._sessions.values():
            sessions.close()


class MqttTerminal(asyncio.Protocol):
    __slots__ = (
        "_connect_handler",
        "_last_received",
        "_metrics",
        "_permissions",
        "_timer",
        "_users",
        "_window",
        "_write_batch",
        "access",
        "acknowledged",
        "client_id",
        "closing",
        "expiry",
        "flow_control",
        "host",
        "keep_alive",
        "mqtt",
        "opened",
        "output",
        "peer",
        "publish_handler",
        "published",
        "reader",
        "sends_reason_strings",
        "session",
        "sessions",
        "tls",
        "transport",
        "version",
        "vhost",
        "will",
        "writer",
    )

    def __init__(self, mqtt: MqttProtocol) -> None:
        self.mqtt = mqtt
        self.host: Host = mqtt.host
        kernel = self.host.kernel
        self._write_batch = kernel.write_batch
        self._users = self.host.users
        self._metrics = kernel.metrics
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: MqttAccess
        self.sessions: MqttSessionRegistry
        self.session: SessionQueue | None = None
        self.will: WillMessage | None = None
        self.version = 0
        self.client_id = ""
        self.expiry = 0  #: seconds the session outlives the connection
        self.keep_alive = 0
        self.sends_reason_strings = True  #: the client asked for problem information
        self.published = 0
        self.acknowledged = 0  #: in-flight messages that the current read acknowledged
        self.opened = False
        self.closing = False
        self.publish_handler: PublishHandler | None = None
        self.writer: MqttWriter = MqttWriter(self)
        self.output = self.writer.output
        self.flow_control = ReadFlowControl(self)
        self.reader = PacketReader(self, CONNECT_MAX_BYTES, kernel.settings.spool_threshold)
        self._connect_handler: ConnectHandler | None = ConnectHandler(self)
        self._permissions = self.host.users.version
        self._timer: TimerBucket | None = None
        self._last_received = 0.0
        self._window = 0

    @property
    def name(self) -> str:
        return connection_name(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        seconds = self.host.kernel.settings.handshake_timeout
        self._start_timer(seconds)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._write_batch.reader = self.flow_control
        published = self.published
        users = self._users
        if self._permissions != users.version:
            self._permissions = users.version
            if self.publish_handler is not None:
                self.publish_handler.forget_permissions()
        try:
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        if self.acknowledged:
            self._metrics.acknowledged += self.acknowledged
            self.acknowledged = 0
            if not self.output.write_blocked:
                self.writer.request_all()
        finish_read(self, len(data), published)
        self._last_received = self._write_batch.loop.time()
        self._write_batch.end_read()

    def post_partial_buckets(self) -> None:
        if self.publish_handler is not None:
            self.publish_handler.post_partial_bucket()

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._detach()
        self._stop_timer()
        self.flow_control.end()
        self.writer.close()
        unregister_connection(self)
        publisher = self.publish_handler
        if publisher is None or not publisher.acknowledgements.has_pending:
            # Reference cycles would keep the terminal until the next garbage collection.
            del self.reader, self.publish_handler, self.flow_control, self.writer

    # Flow control.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        return self.output.unread_bytes

    def blocking(self, reason: str) -> None:
        """MQTT has no such notification: the broker stops reading."""

    def unblocking(self) -> None:
        """As above."""

    # Packets. The first publication creates the handler of all others.

    def need_publish_handler(self) -> PublishHandler:
        if self.publish_handler is None:
            if not self.opened:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, NOT_CONNECTED)
            exchange = self.vhost.exchange(self.host.kernel.settings.mqtt.exchange)
            self.publish_handler = PublishHandler(self, exchange)
            self.reader.publication_handler = self.publish_handler
        return self.publish_handler

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        self.need_publish_handler().on_publish(first, topic, number, properties, payload)

    def on_publish_run(
        self, first: int, topic: bytes, numbers: list[int], payloads: list[bytes]
    ) -> None:
        self.need_publish_handler().on_publish_run(first, topic, numbers, payloads)

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        self.need_publish_handler().on_large_publish(first, topic, number, properties, size)

    def on_payload(self, piece: memoryview, more: bool) -> None:
        self.need_publish_handler().on_payload(piece, more)

    def on_acknowledgement(self, kind: int, packet_id: int, reason: int, properties: bytes) -> None:
        session = self.session
        if kind == PUBREL:
            self.need_publish_handler().acknowledgements.release(packet_id)
            return
        if not self.opened:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, NOT_CONNECTED)
        entry = session.inflight.get(packet_id) if session is not None else None
        channel = self.writer.channel
        if session is None or channel is None or entry is None:
            if kind == PUBREC:  # unknown here: release it at the client
                unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self.send(encode_acknowledgement(PUBREL, packet_id, unknown, version=self.version))
            return
        if isinstance(entry, Message):
            if kind != PUBACK:
                raise wrong_acknowledgement(packet_id, kind)
            del session.inflight[packet_id]
            self.acknowledged += 1
        elif kind == PUBACK if entry.qos == 1 else kind == PUBCOMP and entry.released:
            session.channel_confirm(channel, entry)
            self.acknowledged += 1
        elif kind == PUBREC and entry.qos == 2:
            if reason >= 0x80:
                session.channel_failure(channel, entry, False)
                self.acknowledged += 1
                return
            if not entry.released:
                session.channel_confirm(channel, entry)
            self.send_stored(encode_acknowledgement(PUBREL, packet_id, version=self.version))
        else:
            raise wrong_acknowledgement(packet_id, kind)

    def on_pubacks(self, numbers: Sequence[int]) -> None:
        inflight = self.session.inflight if self.session is not None else {}
        for number in numbers:
            if type(inflight.get(number)) is Message:
                del inflight[number]
                self.acknowledged += 1
            else:
                self.on_acknowledgement(PUBACK, number, 0, b"")

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        if self._connect_handler is not None:
            if kind != CONNECT:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, "the first packet must be CONNECT")
            if self.version:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, "the client sent a second CONNECT")
            self._connect_handler.begin(body)
        elif kind == PINGREQ:
            self.send(PINGRESP_PACKET)
        elif kind == SUBSCRIBE:
            handle_subscribe(self, body)
            self._write_batch.check_time()
        elif kind == UNSUBSCRIBE:
            handle_unsubscribe(self, body)
            self._write_batch.check_time()
        elif kind == DISCONNECT:
            self._on_disconnect(body)
        elif kind == AUTH and self.version == 5:
            decode_auth(body)
            raise MqttError(
                ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT"
            )
        else:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"unexpected packet of type {kind}")

    def _on_disconnect(self, body: bytes) -> None:
        reason, properties = decode_disconnect(body, self.version)
        expiry = properties.get(MqttProperty.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not self.expiry:
                raise MqttError(
                    ReasonCode.PROTOCOL_ERROR,
                    f"session expiry interval {expiry} in DISCONNECT, but 0 in CONNECT",
                )
            self.expiry = min(expiry, self.host.kernel.settings.mqtt.max_session_expiry)
        if reason == ReasonCode.SUCCESS:
            self.will = None
        self._detach()
        self.transport.close()

    # The client.

    def send(self, packet: bytes) -> None:
        self.writer.send(packet)

    def send_stored(self, packet: bytes) -> None:
        """For PUBREL and PUBCOMP, after which the client forgets the exchange: the session must not
        know it after a power cut or a failover. If it cannot be stored, the client repeats it."""
        if self.session is None:
            self.send(packet)
        else:
            self.session.when_stored(
                partial(self.writer.send, packet), lambda _: self.transport.abort()
            )

    def reason_properties(self, text: str) -> MqttProperties | None:
        """A reason string, if the client accepts one of this size."""
        if not self.sends_reason_strings or self.version < 5:
            return None
        if len(text.encode()) + ACKNOWLEDGEMENT_BYTES > self.writer.largest:
            return None
        return {MqttProperty.REASON_STRING: text}

    def need_session(self) -> SessionQueue:
        """The session, which is declared when it is first needed: publishers have none."""
        if self.session is None:
            self.sessions.need(self)
            self._open_session()
        assert self.session is not None
        return self.session

    def _open_session(self) -> None:
        assert self.session is not None
        channel = Channel(self.writer, self.session)
        if self.writer.takes_runs:
            channel.forward_run = self.writer.forward_run
        self.session.attach(channel, self._window)
        self.writer.open(channel)

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    def open(self, *, window: int, aliases: int) -> None:
        """CONNECT was accepted."""
        self.opened = True
        self.host.credential_expiry.watch(self, self.access.user, self.host.kernel.loop)
        self.host.connection_limiter.mark_authenticated(self.transport)
        self.reader.limit = self.host.kernel.settings.mqtt.max_packet_bytes
        self._connect_handler = None
        self._window = window
        self.writer.begin(self.version, aliases)
        if self.session is not None:
            self._open_session()
            self.sessions.rejoin(self)
        self._last_received = self._write_batch.loop.time()
        if self.keep_alive:
            self._start_timer(self.keep_alive * KEEP_ALIVE_FACTOR)
        else:
            self._stop_timer()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.host.kernel.timers.start(self, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.pop(self, None)
            self._timer = None

    def on_timer(self) -> None:
        self._timer = None
        if self.closing:
            self.transport.abort()
        elif not self.opened:
            abort_handshake(self)
        else:
            self._check_keep_alive()

    def _check_keep_alive(self) -> None:
        limit = self.keep_alive * KEEP_ALIVE_FACTOR
        since = max(self._last_received, self.flow_control.resumed_at)
        # While the broker does not read from the socket, it cannot receive packets either.
        reading = self.flow_control.reading
        silence = self._write_batch.loop.time() - since if reading else 0.0
        if silence < limit:
            self._start_timer(limit - silence)
            return
        reason = f"nothing received for {silence:.1f} seconds"
        self.fail(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, reason))
        self._write_batch.flush()

    def fail(self, error: Exception) -> None:
        """Close the connection with the reason, if the version can express it."""
        if self.closing:
            return
        self.closing = True
        text = str(error) or type(error).__name__
        if isinstance(error, MqttError):
            reason = error.reason
            _log.info("connection closed", connection=self.name, reason=text)
        elif isinstance(error, PenstockError):
            reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            _log.info("connection closed", connection=self.name, reason=text)
        else:
            reason = ReasonCode.UNSPECIFIED_ERROR
            text = "internal error"
            _log.error("connection failed", connection=self.name, exc_info=error)
        told = self._send_reason(reason, text)
        self._detach()
        self.writer.flush()
        half_close(self, reason_sent=told)
        self._start_timer(CLOSE_SECONDS)

    def _send_reason(self, reason: ReasonCode, text: str) -> bool:
        """Returns whether the version has a packet for it."""
        if self.opened and self.version == 5:
            self.send(encode_disconnect(reason, self.reason_properties(text)))
        elif not self.opened and self.version > 4:
            self.send(encode_connack(5, False, reason, self.reason_properties(text)))
        elif not self.opened and self.version and reason in CONNACK_RETURN_CODES:
            self.send(encode_connack(self.version, False, reason))
        else:
            return False
        return True

    def _detach(self) -> None:
        """Release everything but the socket, once; the rest of the input is discarded."""
        self.closing = True
        self.reader.stopped = True
        if self._connect_handler is not None:
            self._connect_handler.cancel()
            self._connect_handler = None
        channel, self.writer.channel = self.writer.channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
        if self.opened:
            if self.publish_handler is not None:
                self.publish_handler.close()
            self.opened = False
            self.sessions.leave(self)
        elif self.client_id:
            self.sessions.forget_client(self)

    def session_ended(self) -> None:
        """The session's queue was deleted by an operator."""
        self.writer.channel = None
        self.sessions.forget(self)
        self.fail(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, "the session was deleted"))

    def end(self, reason: str) -> None:
        draining = self.host.draining
        code = ReasonCode.SERVER_SHUTTING_DOWN if draining else ReasonCode.ADMINISTRATIVE_ACTION
        self.fail(MqttError(code, reason))
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    def credential_expired(self) -> None:
        self.fail(MqttError(ReasonCode.MAXIMUM_CONNECT_TIME, "credential expired"))
        self._write_batch.flush()

    # Management.

    def describe(self) -> dict[str, Any]:
        client_id = {"client_id": self.client_id}
        protocol = PROTOCOL_NAMES.get(self.version, "MQTT")
        described = describe_connection(self, protocol, client_id, timeout=self.keep_alive)
        return {**described, "variable_map": client_id}

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        session = self.session
        return [] if session is None else [describe_consumer(self, self.client_id, session.name)]


def wrong_acknowledgement(packet_id: int, kind: int) -> MqttError:
    return MqttError(
        ReasonCode.PROTOCOL_ERROR,
        f"packet {packet_id} was acknowledged by the wrong packet type {kind}",
    )
