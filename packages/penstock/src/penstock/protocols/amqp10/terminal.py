"""The AMQP 1.0 terminal: one socket, and a connection of the engine (`wire/amqp10`) on it.

Bytes come in by `data_received`; what the engine makes of them comes back as its events, here. A
link the client sends on is an `IncomingLink`, one it receives on an `OutgoingLink`; what each gets
is decided in `attach.py`. What goes out, and what drivers ask for, is `writer.py`; who is let
in is `sasl.py`, when reading stops `broker/flow_control.py`, who is still alive `terminal.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.connection_registry import (
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.flow_control import READ_BYTES, ReadFlowControl
from penstock.broker.host import Host
from penstock.broker.users import AccessControl
from penstock.core.errors import ConnectionForced, NotAllowed, NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.protocols.amqp10.attach import attach_incoming_link, attach_outgoing_link
from penstock.protocols.amqp10.errors import to_amqp10_error, to_link_fault
from penstock.protocols.amqp10.incoming_link import IncomingLink
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.amqp10.recovery import CLOSED, FORCED, LinkRecovery, SuspendedLinks
from penstock.protocols.amqp10.sasl import BrokerAuthenticator
from penstock.protocols.amqp10.writer import (
    WRITE_HIGH_WATER_BYTES,
    Amqp10Writer,
    EncodedMessageCache,
)
from penstock.wire.amqp10.connection import Amqp10Connection
from penstock.wire.amqp10.errors import INVALID_FIELD, ConnectionFault, LinkFault
from penstock.wire.amqp10.frames import HEARTBEAT_FRAME
from penstock.wire.amqp10.links import ReceiverLink, SenderLink
from penstock.wire.amqp10.performatives import (
    CONNECTION_CLOSE,
    LINK_DETACH,
    MIXED,
    SECOND,
    SESSION_END,
)
from penstock.wire.amqp10.values import Symbol

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.wire.amqp10.links import IncomingDelivery, LinkEndpoint, OutgoingDelivery
    from penstock.wire.amqp10.performatives import Amqp10Error, Open
    from penstock.wire.amqp10.session import Amqp10Session


#: How long a client may take to answer our close, or to close once all is said.
CLOSE_SECONDS: Final = 5.0

#: A client names a virtual host in the host name of its open, behind this.
VHOST_PREFIX: Final = "vhost:"

_log = get_logger("penstock.amqp10")


class Amqp10Terminal(asyncio.Protocol):
    __slots__ = (
        "_gate",
        "_hung_up",
        "_permissions",
        "_write_batch",
        "access",
        "closing",
        "connection",
        "flow_control",
        "heartbeats",
        "host",
        "name",
        "opened",
        "peer",
        "published",
        "service",
        "spool_threshold",
        "suspended_links",
        "tls",
        "transport",
        "vhost",
        "writer",
    )

    def __init__(self, service: Amqp10Protocol) -> None:
        self.service = service
        self.host = host = service.host
        settings = host.kernel.settings
        self._write_batch = host.kernel.write_batch
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: AccessControl
        self.spool_threshold = settings.spool_threshold
        self.connection = Amqp10Connection(
            self,
            settings.server_name,
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
        )
        self.flow_control = ReadFlowControl(self)
        self.writer: Amqp10Writer = Amqp10Writer(self)
        self.heartbeats = Amqp10Heartbeats(self)
        self.suspended_links = SuspendedLinks(self)
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._gate: BrokerAuthenticator | None = None
        self._hung_up = False

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        self._gate = BrokerAuthenticator(self)
        self.connection.opening = self._gate.opening
        seconds = self.host.kernel.settings.handshake_timeout
        self.heartbeats.expect(seconds, self._handshake_expired)

    def data_received(self, data: bytes) -> None:
        if self._hung_up:
            return
        self.heartbeats.heard = True
        self._write_batch.reader = self.flow_control
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions_changed()
        try:
            self.connection.receive(data)
        except Exception as error:
            self._fail(error)
        writer = self.writer
        if writer.awaiting_credit or writer.acknowledged:
            writer.request()
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.flow_control.wide:
            self.flow_control.adapt_read_size(size)
        if self.published != published or self.flow_control.has_pending_buckets:
            metrics.published += self.published - published
            if self.flow_control.has_pending_buckets and self.flow_control.account.spent:
                self.post_partial_bucket()
            self.flow_control.check_limits()
        if writer.paused and self.flow_control.is_unread:
            self.flow_control.pause()
        self._write_batch.flush()

    def _permissions_changed(self) -> None:
        """What was allowed has to be asked for again."""
        self._permissions = self.host.users.version
        for link in self._links():
            if isinstance(link.context, IncomingLink):
                link.context.forget_routes()

    def post_partial_bucket(self) -> None:
        """What is here of large messages goes to where it is spooled."""
        for link in self._links():
            if isinstance(link.context, IncomingLink):
                link.context.post_partial_bucket()

    def _links(self) -> list[LinkEndpoint]:
        return [link for session in self.connection.sessions for link in session.links]

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.heartbeats.stop()
        self.flow_control.end()
        self.closing = self._hung_up = True
        if self._gate is not None:
            self._gate.cancel()
            self._gate = None
        self._end_links()
        self.connection.lose()
        unregister_connection(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.flow_control, self.writer, self.heartbeats, self.suspended_links

    def _end_links(self) -> None:
        for link in self._links():
            self.suspended_links.end(link, CONNECTION_CLOSE)
        self.suspended_links.passed(CONNECTION_CLOSE)
        self.writer.forget()
        if self.opened:
            self.vhost.release(self)

    def finished(self) -> None:
        """All is said and written; what still comes is discarded."""
        if not self._hung_up:
            self._hung_up = self.closing = True
            half_close(self, told=False)
            self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    # The engine: the connection.

    def on_output(self) -> None:
        self.writer.schedule_flush()

    def on_open(self, opened: Open) -> None:
        """Who comes in, and where to."""
        host = self.host
        assert self._gate is not None
        user = self._gate.user
        settings = host.kernel.settings
        try:
            if user is None:
                raise NotAllowed("nobody has said who this is")
            named = opened.hostname or ""
            name = (
                named[len(VHOST_PREFIX) :]
                if named.startswith(VHOST_PREFIX)
                else settings.default_vhost
            )
            vhost = host.vhosts.get(name)
            if vhost is None:
                raise NotFound(f"vhost {name} not found")
            if not host.users.can_access_vhost(user, vhost.name):
                raise NotAllowed(f"access to vhost '{vhost.name}' refused for user '{user.name}'")
            limit = settings.max_connections
            if limit and len(host.clients) > limit:
                raise NotAllowed(f"the broker's limit of {limit} connections is reached")
            if host.draining:
                raise NotAllowed("the broker is shutting down")
            theirs = (opened.idle_time_out or 0) / 1000
            if theirs and theirs < MIN_IDLE_TIMEOUT_SECONDS:
                raise NotAllowed(f"an idle time-out of {opened.idle_time_out} ms is too short")
        except PenstockError as error:
            told = to_amqp10_error(error)
            raise ConnectionFault(told.condition, told.description or "") from None
        self.vhost = vhost
        self.access = AccessControl(host.users, user, vhost.name)
        self.opened = True
        self.host.connection_limiter.mark_authenticated(self.transport)
        product = {Symbol(key): str(value) for key, value in host.product.items()}
        self.connection.open(
            idle_time_out=settings.heartbeat * 1000 or None,
            offered_capabilities=("ANONYMOUS-RELAY",),
            properties=product,
        )
        self.heartbeats.begin(settings.heartbeat, theirs)

    def on_close(self, error: Amqp10Error | None) -> None:
        if error is not None:
            reason = f"{error.condition} {error.description or ''}".strip()
            _log.info("connection closed", connection=self.name, reason=reason)
        self._leave()

    def _leave(self) -> None:
        """A close has been sent: all ends here, and the client's close is all that is awaited."""
        if not self.closing:
            self.closing = True
            self._end_links()
            self.flow_control.reopen()
            self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def on_begin(self, session: Amqp10Session) -> None:
        """Sessions are the engine's."""

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        for link in session.links:
            self.suspended_links.end(link, SESSION_END)
        self.suspended_links.passed(SESSION_END, session)

    # The engine: links.

    def on_attach(self, link: LinkEndpoint) -> None:
        assert link.remote is not None
        modes = (link.remote.snd_settle_mode, link.remote.rcv_settle_mode)
        if modes[0] > MIXED or modes[1] > SECOND:
            raise LinkFault(INVALID_FIELD, f"no settle modes are {modes}")
        try:
            if isinstance(link, SenderLink):
                attach_outgoing_link(self, link)
            else:
                attach_incoming_link(self, cast(ReceiverLink, link))
        except PenstockError as error:
            raise to_link_fault(error) from error

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        self.suspended_links.end(link, CLOSED if closed else LINK_DETACH)

    def end_link(self, link: LinkEndpoint, error: Amqp10Error) -> None:
        """The broker's wish: what the link led to is gone."""
        self.suspended_links.end(link, FORCED)
        link.detach(error)

    def on_flow(self, link: SenderLink) -> None:
        outgoing_link: OutgoingLink = link.context
        self.writer.awaiting_credit[outgoing_link] = None

    def on_window_open(self, session: Amqp10Session) -> None:
        self.writer.withdraw(session)

    def on_drained(self, link: ReceiverLink) -> None:
        """What a client that sends says of its credit is the engine's."""

    # The engine: deliveries.

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        incoming_link: IncomingLink = delivery.link.context
        incoming_link.take(delivery, payload, more)

    def on_abort(self, delivery: IncomingDelivery) -> None:
        incoming_link: IncomingLink = delivery.link.context
        incoming_link.abandon()

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        outgoing_link = delivery.link.context
        if isinstance(outgoing_link, OutgoingLink) and delivery in outgoing_link.open:
            del outgoing_link.open[delivery]
            outgoing_link.answer(delivery.context, delivery.state)

    def on_settled(self, delivery: IncomingDelivery) -> None:
        incoming_link = delivery.link.context
        if isinstance(incoming_link, IncomingLink) and delivery is not incoming_link.link.arriving:
            incoming_link.settled()

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.connection.reader.held

    @held.setter
    def held(self, held: bool) -> None:
        self.connection.reader.held = held

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.writer.paused else 0

    def blocking(self, reason: str) -> None:
        """There is no word for it in AMQP 1.0: credit is not renewed, and nothing is read."""

    def unblocking(self) -> None:
        """As above."""

    # The client.

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    def _handshake_expired(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def _fail(self, error: Exception) -> None:
        """Something went wrong that is nobody's fault but ours."""
        told = to_amqp10_error(error)
        self.connection.fail(ConnectionFault(told.condition, told.description or ""))

    def end(self, reason: str) -> None:
        if self.connection.opening is not None:
            self.transport.abort()
            return
        self.connection.close(to_amqp10_error(ConnectionForced(reason)))
        self._leave()
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return [describe_session(self, session) for session in self.connection.sessions]

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)


# AMQP 1.0 as one broker speaks it: what its connections share.


class Amqp10Protocol:
    __slots__ = ("host", "message_cache", "recovery")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.message_cache = EncodedMessageCache()
        kernel = host.kernel
        self.recovery = LinkRecovery(
            lambda seconds, done: kernel.write_batch.call_at(kernel.loop.time() + seconds, done)
        )

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return Amqp10Terminal(self)

    def close(self) -> None:
        self.recovery.close()


# Signs of life: a handshake in good time, then something to hear within the idle time-outs.
#
# Each side says how long a silence it bears. A peer that was silent for twice what we said is gone;
# we speak at least twice as often as the peer wants.

#: Shorter time-outs would have us do little else, in seconds.
MIN_IDLE_TIMEOUT_SECONDS: Final = 0.1


class Amqp10Heartbeats:
    __slots__ = ("_beats", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        self._timer: asyncio.TimerHandle | None = None
        self._beats: asyncio.TimerHandle | None = None
        self.interval = 0.0  #: seconds of silence we bear; 0 for any
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._timer = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, ours: float, theirs: float) -> None:
        """From now on: the silence we bear, and the one our peer does; 0 for any."""
        self.stop()
        self.interval = ours
        if ours:
            self._listen()
        if theirs:
            self._beat(theirs / 2)

    def stop(self) -> None:
        for timer in (self._timer, self._beats):
            if timer is not None:
                timer.cancel()
        self._timer = self._beats = None

    def _beat(self, every: float) -> None:
        terminal = self._terminal
        if not self.said and not terminal.writer.paused:
            terminal.transport.write(HEARTBEAT_FRAME)
        self.said = False
        self._beats = terminal.host.kernel.loop.call_later(every, self._beat, every)

    def _listen(self, silent: int = 0) -> None:
        """Every half interval: count how long nothing was heard."""
        terminal = self._terminal
        # Who is not read from cannot be heard.
        silent = 0 if self.heard or not terminal.flow_control.reading else silent + 1
        self.heard = False
        if silent > 4:
            _log.info("nothing heard from client", connection=terminal.name)
            terminal.transport.abort()
            return
        loop = terminal.host.kernel.loop
        self._timer = loop.call_later(self.interval / 2, self._listen, silent)


# A connection as management shows it, under RabbitMQ's field names; its sessions are channels.


def describe_connection(terminal: Amqp10Terminal) -> dict[str, Any]:
    opened = terminal.opened
    remote = terminal.connection.remote
    said = (remote.properties if remote else None) or {}
    return {
        "name": terminal.name,
        "protocol": "AMQP 1.0",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": len(terminal.connection.sessions),
        "channel_max": terminal.connection.channel_max,
        "frame_max": terminal.connection.remote_frame_max,
        "timeout": int(terminal.heartbeats.interval),
        "container_id": remote.container_id if remote else "",
        "client_properties": {
            str(key): value for key, value in said.items() if isinstance(value, str | int | float)
        },
        "state": "blocked"
        if terminal.flow_control.blocked
        else "running"
        if opened
        else "starting",
    }


def describe_session(terminal: Amqp10Terminal, session: Amqp10Session) -> dict[str, Any]:
    incoming_links = [
        link.context for link in session.links if isinstance(link.context, IncomingLink)
    ]
    outgoing_links = [one for one in terminal.writer.outgoing_links if one.link.session is session]
    return {
        "name": f"{terminal.name} ({session.channel})",
        "number": session.channel,
        "user": terminal.access.user.name,
        "vhost": terminal.vhost.name,
        "connection_details": {"name": terminal.name},
        "consumer_count": len(outgoing_links),
        "messages_unacknowledged": len(session.outgoing),
        "messages_unconfirmed": sum(incoming_link.unsettled for incoming_link in incoming_links),
        "prefetch_count": 0,
        "global_prefetch_count": 0,
        "confirm": bool(incoming_links),
        "transactional": False,
        "state": "running",
    }


def describe_consumers(terminal: Amqp10Terminal) -> list[dict[str, Any]]:
    return [
        {
            "consumer_tag": outgoing_link.link.name,
            "queue": {"name": outgoing_link.queue, "vhost": terminal.vhost.name},
            "channel_details": {
                "name": f"{terminal.name} ({outgoing_link.link.session.channel})",
                "number": outgoing_link.link.session.channel,
            },
            "ack_required": not outgoing_link.presettled,
            "prefetch_count": max(0, outgoing_link.link.credit),
            "exclusive": False,
            "arguments": {key: str(value) for key, value in outgoing_link.arguments.items()},
        }
        for outgoing_link in terminal.writer.outgoing_links
    ]
