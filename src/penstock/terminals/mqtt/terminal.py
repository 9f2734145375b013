"""The MQTT terminal: one socket, one client, 3.1.1 or 5.0 as its CONNECT says.

Bytes come in by `data_received` and are taken apart by `reader.py`. What a client publishes is
`inflow.py`, what it is told of that `answers.py`, and what it gets is `outflow.py`; `joining.py`
lets it in, `subscribing.py` binds what it asks for, and `sessions.py` knows what is to become of it
when it goes. When reading stops is `broker/intake.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import UNLIMITED, Channel
from penstock.broker.host import Host
from penstock.broker.intake import READ_BYTES, Intake
from penstock.broker.presence import arrive, depart, hang_up
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.terminals.mqtt.description import describe_connection, describe_consumers
from penstock.terminals.mqtt.encode import PINGRESP, connack, disconnect
from penstock.terminals.mqtt.fields import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from penstock.terminals.mqtt.inflow import Inflow
from penstock.terminals.mqtt.joining import Joining
from penstock.terminals.mqtt.outflow import CHOKE_BYTES, Outflow
from penstock.terminals.mqtt.packets import decode_auth, decode_disconnect
from penstock.terminals.mqtt.properties import Properties, Property
from penstock.terminals.mqtt.reader import PacketReader
from penstock.terminals.mqtt.reasons import CONNACK_3, MqttError, Reason
from penstock.terminals.mqtt.subscribing import subscribe, unsubscribe

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.broker.sessions import Session
    from penstock.broker.vhost import VirtualHost
    from penstock.terminals.mqtt.access import Access
    from penstock.terminals.mqtt.service import Mqtt
    from penstock.terminals.mqtt.sessions import Sessions
    from penstock.terminals.mqtt.wills import Will

#: How long a client that is sent away may take to read what it is told.
CLOSE_SECONDS: Final = 5.0

#: The largest packet of a stranger: five fields of 64 KiB, and properties.
CONNECT_BYTES: Final = 512 * 1024

#: What an answer takes at most, beside what it has to tell.
ANSWER_BYTES: Final = 16

_log = get_logger("penstock.mqtt")


class MqttTerminal(asyncio.Protocol):
    __slots__ = (
        "_joining",
        "_last_heard",
        "_metrics",
        "_permissions",
        "_timer",
        "_turn",
        "_users",
        "_window",
        "access",
        "answered",
        "client_id",
        "closing",
        "expiry",
        "explains",
        "host",
        "inflow",
        "intake",
        "keep_alive",
        "mqtt",
        "name",
        "opened",
        "outflow",
        "peer",
        "published",
        "reader",
        "session",
        "sessions",
        "tls",
        "transport",
        "version",
        "vhost",
        "will",
    )

    def __init__(self, mqtt: Mqtt) -> None:
        self.mqtt = mqtt
        self.host: Host = mqtt.host
        kernel = self.host.kernel
        self._turn = kernel.turn
        self._users = self.host.users
        self._metrics = kernel.metrics
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: Access
        self.sessions: Sessions
        self.session: Session | None = None
        self.will: Will | None = None
        self.version = 0
        self.client_id = ""
        self.expiry = 0  #: seconds the session outlives the connection
        self.keep_alive = 0
        self.explains = True  #: the client wants to be told why
        self.name = ""
        self.published = 0
        self.answered = 0  #: letters the client is done with since the last look
        self.opened = False
        self.closing = False
        self.inflow = Inflow(self)
        self.outflow = Outflow(self)
        self.intake = Intake(self)
        self.reader = PacketReader(self.inflow, CONNECT_BYTES, kernel.settings.spool_threshold)
        self._joining: Joining | None = Joining(self)
        self._permissions = self.host.users.version
        self._timer: asyncio.TimerHandle | None = None
        self._last_heard = 0.0
        self._window = 0

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        arrive(self, transport, CHOKE_BYTES)
        kernel = self.host.kernel
        self._timer = kernel.loop.call_later(kernel.settings.handshake_timeout, self._too_late)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._turn.reader = self.intake
        published = self.published
        users = self._users
        if self._permissions != users.version:
            self._permissions = users.version
            self.inflow.forget_permissions()
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
        if size >= READ_BYTES or self.intake.wide:
            self.intake.adapt(size)
        if self.published != published or self.intake.filling:
            metrics.published += self.published - published
            self.intake.look()
        if self.outflow.paused and self.intake.unread:
            self.intake.pause()
        self._last_heard = self._turn.loop.time()
        self._turn.rest()

    def _go_on(self) -> None:
        """The client has answered letters: there is room for more."""
        channel = self.outflow.channel
        if channel is not None and not self.outflow.choked:
            channel.driver.channel_request(channel, UNLIMITED)

    def pause_writing(self) -> None:
        self.outflow.pause()

    def resume_writing(self) -> None:
        self.outflow.resume()
        self.intake.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._stop_timer()
        self.intake.end()
        self.outflow.forget()
        depart(self)
        if not self.inflow.answers.is_awaited:
            # What refers back to us would keep us, and all that was read, until cycles are looked
            # for.
            del self.reader, self.inflow, self.intake, self.outflow

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        waiting = self.outflow.held
        if self.outflow.paused:
            waiting += self.transport.get_write_buffer_size()
        return waiting

    def blocking(self, reason: str) -> None:
        """MQTT has no word for it: publishers notice that they are not read from."""

    def unblocking(self) -> None:
        """Nor for this."""

    # Packets.

    def on_packet(self, kind: int, body: bytes) -> None:
        if self._joining is not None:
            if kind != CONNECT:
                raise MqttError(Reason.PROTOCOL_ERROR, "the first packet must be CONNECT")
            if self.version:
                raise MqttError(Reason.PROTOCOL_ERROR, "a second CONNECT")
            self._joining.begin(body)
        elif kind == PINGREQ:
            self.send(PINGRESP)
        elif kind == SUBSCRIBE:
            subscribe(self, body)
            self._turn.spend()
        elif kind == UNSUBSCRIBE:
            unsubscribe(self, body)
            self._turn.spend()
        elif kind == DISCONNECT:
            self._take_leave(body)
        elif kind == AUTH and self.version == 5:
            decode_auth(body)
            raise MqttError(Reason.PROTOCOL_ERROR, "AUTH, but no authentication method was agreed")
        else:
            raise MqttError(Reason.PROTOCOL_ERROR, f"a packet of type {kind} is out of place")

    def _take_leave(self, body: bytes) -> None:
        reason, properties = decode_disconnect(body, self.version)
        expiry = properties.get(Property.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not self.expiry:
                raise MqttError(
                    Reason.PROTOCOL_ERROR, "a session that was to end here cannot be prolonged"
                )
            most = self.host.kernel.settings.mqtt.max_session_expiry
            self.expiry = min(expiry, most)
        if reason == Reason.SUCCESS:
            self.will = None
        self._leave()
        self.transport.close()

    # The client.

    def send(self, packet: bytes) -> None:
        self.outflow.send(packet)

    def explained(self, text: str) -> Properties | None:
        """A sentence for the client's log, if it wants one and has room for it."""
        if not self.explains or self.version < 5:
            return None
        if len(text.encode()) + ANSWER_BYTES > self.outflow.largest:
            return None
        return {Property.REASON_STRING: text}

    def need_session(self) -> Session:
        """The session; a client that only publishes does without."""
        if self.session is None:
            self.sessions.need(self)
            self._open_session()
        assert self.session is not None
        return self.session

    def _open_session(self) -> None:
        assert self.session is not None
        channel = Channel(self.outflow, self.session)
        self.session.attach(channel, self._window)
        self.outflow.open(channel)

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.intake.alarms_changed()

    # Life.

    def open(self, exchange: Exchange, *, window: int, aliases: int) -> None:
        """The client is let in."""
        self.opened = True
        self.host.admission.admit(self.transport)
        self.reader.limit = self.host.kernel.settings.mqtt.max_packet_bytes
        self._joining = None
        self._window = window
        self.outflow.begin(self.version, aliases)
        self.inflow.open(exchange)
        if self.session is not None:
            self._open_session()
            self.sessions.rejoin(self)
        self._stop_timer()
        self._last_heard = self._turn.loop.time()
        if self.keep_alive:
            self._listen(self.keep_alive * 1.5)

    def _listen(self, seconds: float) -> None:
        self._timer = self._turn.loop.call_later(seconds, self._silent)

    def _silent(self) -> None:
        """Half again as long as it said it would be silent at most: is it still there?"""
        patience = self.keep_alive * 1.5
        since = max(self._last_heard, self.intake.resumed_at)
        silence = self._turn.loop.time() - since
        if not self.intake.reading:  # who is not read from cannot be heard
            silence = 0.0
        if silence < patience:
            self._listen(patience - silence)
            return
        self.fail(MqttError(Reason.KEEP_ALIVE_TIMEOUT, f"silent for {silence:.1f} seconds"))
        self._turn.end()

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
            reason = Reason.IMPLEMENTATION_SPECIFIC_ERROR
            _log.info("connection closed", connection=self.name, reason=text)
        else:
            reason = Reason.UNSPECIFIED_ERROR
            text = "internal error"
            _log.error("connection failed", connection=self.name, exc_info=error)
        told = self._say(reason, text)
        self._leave()
        self.outflow.flush()
        hang_up(self, told=told)
        self._stop_timer()
        self._timer = self._turn.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _say(self, reason: Reason, text: str) -> bool:
        """Why it ends; false where the version has no words for that."""
        if self.opened and self.version == 5:
            self.send(disconnect(reason, self.explained(text)))
        elif not self.opened and self.version > 4:
            self.send(connack(5, False, reason, self.explained(text)))
        elif not self.opened and self.version and reason in CONNACK_3:
            self.send(connack(self.version, False, reason))
        else:
            return False
        return True

    def _leave(self) -> None:
        """Once: let go of everything but the socket; what was read behind is not looked at."""
        self.closing = True
        self.reader.stopped = True
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        channel, self.outflow.channel = self.outflow.channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
        if self.opened:
            self.inflow.close()
            self.opened = False
            self.sessions.leave(self)
        elif self.client_id:
            self.sessions.forget_client(self)

    def session_ended(self) -> None:
        """An operator has deleted the session."""
        self.outflow.channel = None
        self.sessions.forget(self)
        self.fail(MqttError(Reason.ADMINISTRATIVE_ACTION, "the session was deleted"))

    def end(self, reason: str) -> None:
        draining = self.host.draining
        code = Reason.SERVER_SHUTTING_DOWN if draining else Reason.ADMINISTRATIVE_ACTION
        self.fail(MqttError(code, reason))
        self._turn.end()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)
