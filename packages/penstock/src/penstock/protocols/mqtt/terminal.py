"""The MQTT terminal: one socket, one client, 3.1.1 or 5.0 as its CONNECT says.

Bytes come in by `data_received` and are taken apart by `reader.py`. What a client publishes is
`publish.py`, what it is told of that `acknowledgements.py`, and what it gets is `writer.py`;
`connect.py` lets it in, `subscribe.py` binds what it asks for, and `sessions.py` knows what is to
become of it when it goes. When reading stops is `broker/flow_control.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.contract import UNLIMITED_CREDIT, Channel
from penstock.broker.flow_control import READ_BYTES, ReadFlowControl
from penstock.broker.host import Host
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.protocols.mqtt.connect import ConnectHandler
from penstock.protocols.mqtt.publish import PublishHandler
from penstock.protocols.mqtt.sessions import MqttSessionRegistry
from penstock.protocols.mqtt.subscribe import handle_subscribe, handle_unsubscribe
from penstock.protocols.mqtt.sys_topics import SysTopics
from penstock.protocols.mqtt.writer import WRITE_HIGH_WATER_BYTES, EncodedPacketCache, MqttWriter
from penstock.wire.mqtt.fields import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from penstock.wire.mqtt.packets import (
    PINGRESP_PACKET,
    decode_auth,
    decode_disconnect,
    encode_connack,
    encode_disconnect,
)
from penstock.wire.mqtt.properties import MqttProperties, MqttProperty
from penstock.wire.mqtt.reader import PacketReader
from penstock.wire.mqtt.reason_codes import CONNACK_RETURN_CODES, MqttError, ReasonCode

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange, SessionQueue
    from penstock.protocols.mqtt.sessions import MqttAccess, WillMessage


#: How long a client that is sent away may take to read what it is told.
CLOSE_SECONDS: Final = 5.0

#: The largest packet of a stranger: five fields of 64 KiB, and properties.
CONNECT_MAX_BYTES: Final = 512 * 1024

#: What an answer takes at most, beside what it has to tell.
ACKNOWLEDGEMENT_BYTES: Final = 16

_log = get_logger("penstock.mqtt")


class MqttTerminal(asyncio.Protocol):
    __slots__ = (
        "_connect_handler",
        "_last_heard",
        "_metrics",
        "_permissions",
        "_timer",
        "_users",
        "_window",
        "_write_batch",
        "access",
        "answered",
        "client_id",
        "closing",
        "expiry",
        "flow_control",
        "host",
        "keep_alive",
        "mqtt",
        "name",
        "opened",
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
        self.sends_reason_strings = True  #: the client wants to be told why
        self.name = ""
        self.published = 0
        self.answered = 0  #: letters the client is done with since the last look
        self.opened = False
        self.closing = False
        self.publish_handler = PublishHandler(self)
        self.writer = MqttWriter(self)
        self.flow_control = ReadFlowControl(self)
        self.reader = PacketReader(
            self.publish_handler, CONNECT_MAX_BYTES, kernel.settings.spool_threshold
        )
        self._connect_handler: ConnectHandler | None = ConnectHandler(self)
        self._permissions = self.host.users.version
        self._timer: asyncio.TimerHandle | None = None
        self._last_heard = 0.0
        self._window = 0

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        kernel = self.host.kernel
        self._timer = kernel.loop.call_later(kernel.settings.handshake_timeout, self._too_late)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._write_batch.reader = self.flow_control
        published = self.published
        users = self._users
        if self._permissions != users.version:
            self._permissions = users.version
            self.publish_handler.forget_permissions()
        try:
            self.reader.feed(data)
        except Exception as error:
            self.fail(error)
        metrics = self._metrics
        if self.answered:
            metrics.acknowledged += self.answered
            self.answered = 0
            self._go_on()
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.flow_control.wide:
            self.flow_control.adapt_read_size(size)
        if self.published != published or self.flow_control.has_pending_buckets:
            metrics.published += self.published - published
            self.flow_control.check_limits()
        if self.writer.paused and self.flow_control.is_unread:
            self.flow_control.pause()
        self._last_heard = self._write_batch.loop.time()
        self._write_batch.end_read()

    def _go_on(self) -> None:
        """The client has answered letters: there is room for more."""
        channel = self.writer.channel
        if channel is not None and not self.writer.write_blocked:
            channel.driver.channel_request(channel, UNLIMITED_CREDIT)

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._stop_timer()
        self.flow_control.end()
        self.writer.forget()
        unregister_connection(self)
        if not self.publish_handler.acknowledgements.is_awaited:
            # What refers back to us would keep us, and all that was read, until cycles are looked
            # for.
            del self.reader, self.publish_handler, self.flow_control, self.writer

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        waiting = self.writer.held
        if self.writer.paused:
            waiting += self.transport.get_write_buffer_size()
        return waiting

    def blocking(self, reason: str) -> None:
        """MQTT has no word for it: publishers notice that they are not read from."""

    def unblocking(self) -> None:
        """Nor for this."""

    # Packets.

    def on_packet(self, kind: int, body: bytes) -> None:
        if self._connect_handler is not None:
            if kind != CONNECT:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, "the first packet must be CONNECT")
            if self.version:
                raise MqttError(ReasonCode.PROTOCOL_ERROR, "a second CONNECT")
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
            self._take_leave(body)
        elif kind == AUTH and self.version == 5:
            decode_auth(body)
            raise MqttError(
                ReasonCode.PROTOCOL_ERROR, "AUTH, but no authentication method was agreed"
            )
        else:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"a packet of type {kind} is out of place")

    def _take_leave(self, body: bytes) -> None:
        reason, properties = decode_disconnect(body, self.version)
        expiry = properties.get(MqttProperty.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not self.expiry:
                raise MqttError(
                    ReasonCode.PROTOCOL_ERROR, "a session that was to end here cannot be prolonged"
                )
            most = self.host.kernel.settings.mqtt.max_session_expiry
            self.expiry = min(expiry, most)
        if reason == ReasonCode.SUCCESS:
            self.will = None
        self._leave()
        self.transport.close()

    # The client.

    def send(self, packet: bytes) -> None:
        self.writer.send(packet)

    def explained(self, text: str) -> MqttProperties | None:
        """A sentence for the client's log, if it wants one and has room for it."""
        if not self.sends_reason_strings or self.version < 5:
            return None
        if len(text.encode()) + ACKNOWLEDGEMENT_BYTES > self.writer.largest:
            return None
        return {MqttProperty.REASON_STRING: text}

    def need_session(self) -> SessionQueue:
        """The session; a client that only publishes does without."""
        if self.session is None:
            self.sessions.need(self)
            self._open_session()
        assert self.session is not None
        return self.session

    def _open_session(self) -> None:
        assert self.session is not None
        channel = Channel(self.writer, self.session)
        self.session.attach(channel, self._window)
        self.writer.open(channel)

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    # Life.

    def open(self, exchange: Exchange, *, window: int, aliases: int) -> None:
        """The client is let in."""
        self.opened = True
        self.host.connection_limiter.mark_authenticated(self.transport)
        self.reader.limit = self.host.kernel.settings.mqtt.max_packet_bytes
        self._connect_handler = None
        self._window = window
        self.writer.begin(self.version, aliases)
        self.publish_handler.open(exchange)
        if self.session is not None:
            self._open_session()
            self.sessions.rejoin(self)
        self._stop_timer()
        self._last_heard = self._write_batch.loop.time()
        if self.keep_alive:
            self._listen(self.keep_alive * 1.5)

    def _listen(self, seconds: float) -> None:
        self._timer = self._write_batch.loop.call_later(seconds, self._silent)

    def _silent(self) -> None:
        """Half again as long as it said it would be silent at most: is it still there?"""
        patience = self.keep_alive * 1.5
        since = max(self._last_heard, self.flow_control.resumed_at)
        silence = self._write_batch.loop.time() - since
        if not self.flow_control.reading:  # who is not read from cannot be heard
            silence = 0.0
        if silence < patience:
            self._listen(patience - silence)
            return
        self.fail(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, f"silent for {silence:.1f} seconds"))
        self._write_batch.flush()

    def _too_late(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def fail(self, error: Exception) -> None:
        """Close the connection and say why, as far as the version has words for it."""
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
        told = self._say(reason, text)
        self._leave()
        self.writer.flush()
        half_close(self, told=told)
        self._stop_timer()
        self._timer = self._write_batch.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _say(self, reason: ReasonCode, text: str) -> bool:
        """Why it ends; false where the version has no words for that."""
        if self.opened and self.version == 5:
            self.send(encode_disconnect(reason, self.explained(text)))
        elif not self.opened and self.version > 4:
            self.send(encode_connack(5, False, reason, self.explained(text)))
        elif not self.opened and self.version and reason in CONNACK_RETURN_CODES:
            self.send(encode_connack(self.version, False, reason))
        else:
            return False
        return True

    def _leave(self) -> None:
        """Once: let go of everything but the socket; what was read behind is not looked at."""
        self.closing = True
        self.reader.stopped = True
        if self._connect_handler is not None:
            self._connect_handler.cancel()
            self._connect_handler = None
        channel, self.writer.channel = self.writer.channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
        if self.opened:
            self.publish_handler.close()
            self.opened = False
            self.sessions.leave(self)
        elif self.client_id:
            self.sessions.forget_client(self)

    def session_ended(self) -> None:
        """An operator has deleted the session."""
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

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)


# MQTT as one broker speaks it: what its connections share.


class MqttProtocol:
    __slots__ = ("_sessions", "_sys", "headers", "host", "packet_cache")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.packet_cache = EncodedPacketCache()
        self.headers: dict[int, bytes] = {}  #: of publications without properties, by size
        self._sessions: dict[str, MqttSessionRegistry] = {}
        for vhost in host.vhosts.values():
            self.sessions(vhost)
        self._sys = SysTopics(host, self._sessions)
        self._sys.start()

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return MqttTerminal(self)

    def sessions(self, vhost: VirtualHost) -> MqttSessionRegistry:
        found = self._sessions.get(vhost.name)
        if found is None or found.vhost is not vhost:  # another may have had its name
            if found is not None:
                found.close()
            found = self._sessions[vhost.name] = MqttSessionRegistry(vhost, self.host.users)
        return found

    def close(self) -> None:
        self._sys.stop()
        for sessions in self._sessions.values():
            sessions.close()


# A connection as management shows it, under RabbitMQ's field names.

PROTOCOL_NAMES: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5.0"}


def describe_connection(terminal: MqttTerminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.opened and terminal.flow_control.blocked  # who has gone has no intake
    return {
        "name": terminal.name,
        "protocol": PROTOCOL_NAMES.get(terminal.version, "MQTT"),
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": 0,
        "channel_max": 0,
        "frame_max": 0,
        "timeout": terminal.keep_alive,
        "client_properties": {"client_id": terminal.client_id},
        "variable_map": {"client_id": terminal.client_id},
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_consumers(terminal: MqttTerminal) -> list[dict[str, Any]]:
    session = terminal.session
    if session is None:
        return []
    return [
        {
            "consumer_tag": terminal.client_id,
            "queue": {"name": session.name, "vhost": terminal.vhost.name},
            "channel_details": {"name": terminal.name},
            "ack_required": True,
            "prefetch_count": 0,
            "exclusive": True,
            "arguments": {},
        }
    ]
