"""The AMQP 1.0 terminal: one socket, and a connection of the engine (`wire/amqp10`) on it.

Bytes come in by `data_received`; what the engine makes of them comes back as its events, here. A
link the client sends on is an `Inlet`, one it receives on an `Outlet`; what each gets is decided
in `attaching.py`. What goes out, and what drivers ask for, is `outflow.py`; who is let in is
`gate.py`, when reading stops `broker/intake.py`, who is still alive `lifesigns.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.access import Access
from penstock.broker.intake import READ_BYTES, Intake
from penstock.broker.presence import arrive, depart, hang_up
from penstock.core.errors import ConnectionForced, NotAllowed, NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.terminals.amqp10.attaching import attach_inlet, attach_outlet
from penstock.terminals.amqp10.description import (
    describe_connection,
    describe_consumers,
    describe_session,
)
from penstock.terminals.amqp10.errors import error_of, link_fault
from penstock.terminals.amqp10.gate import TerminalGate
from penstock.terminals.amqp10.inlet import Inlet
from penstock.terminals.amqp10.interruption import CLOSED, FORCED, Interruptions
from penstock.terminals.amqp10.lifesigns import LEAST, Lifesigns
from penstock.terminals.amqp10.outflow import CHOKE_BYTES, Outflow
from penstock.terminals.amqp10.outlet import Outlet
from penstock.wire.amqp10.conditions import INVALID_FIELD, ConnectionFault, LinkFault
from penstock.wire.amqp10.connection import Connection
from penstock.wire.amqp10.links import Receiver, Sender
from penstock.wire.amqp10.performatives import MIXED, SECOND
from penstock.wire.amqp10.termini import CONNECTION_CLOSE, LINK_DETACH, SESSION_END
from penstock.wire.amqp10.values import Symbol

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.terminals.amqp10.service import Amqp10
    from penstock.wire.amqp10.links import Incoming, Link, Outgoing
    from penstock.wire.amqp10.performatives import Open
    from penstock.wire.amqp10.session import Session
    from penstock.wire.amqp10.states import Error

#: How long a client may take to answer our close, or to close once all is said.
CLOSE_SECONDS: Final = 5.0

#: A client names a virtual host in the host name of its open, behind this.
VHOST: Final = "vhost:"

_log = get_logger("penstock.amqp10")


class Amqp10Terminal(asyncio.Protocol):
    __slots__ = (
        "_gate",
        "_hung_up",
        "_permissions",
        "_turn",
        "access",
        "closing",
        "connection",
        "host",
        "intake",
        "interruptions",
        "lifesigns",
        "name",
        "opened",
        "outflow",
        "peer",
        "published",
        "service",
        "spool_threshold",
        "tls",
        "transport",
        "vhost",
    )

    def __init__(self, service: Amqp10) -> None:
        self.service = service
        self.host = host = service.host
        settings = host.kernel.settings
        self._turn = host.kernel.turn
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: Access
        self.spool_threshold = settings.spool_threshold
        self.connection = Connection(
            self,
            settings.server_name,
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
        )
        self.intake = Intake(self)
        self.outflow: Outflow = Outflow(self)
        self.lifesigns = Lifesigns(self)
        self.interruptions = Interruptions(self)
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._gate: TerminalGate | None = None
        self._hung_up = False

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        arrive(self, transport, CHOKE_BYTES)
        self._gate = TerminalGate(self)
        self.connection.opening = self._gate.opening
        seconds = self.host.kernel.settings.handshake_timeout
        self.lifesigns.expect(seconds, self._handshake_expired)

    def data_received(self, data: bytes) -> None:
        if self._hung_up:
            return
        self.lifesigns.heard = True
        self._turn.reader = self.intake
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions_changed()
        try:
            self.connection.receive(data)
        except Exception as error:
            self._fail(error)
        outflow = self.outflow
        if outflow.thirsty or outflow.acknowledged:
            outflow.request()
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.intake.wide:
            self.intake.adapt(size)
        if self.published != published or self.intake.filling:
            metrics.published += self.published - published
            if self.intake.filling and self.intake.account.spent:
                self.hand_over()
            self.intake.look()
        if outflow.paused and self.intake.unread:
            self.intake.pause()
        self._turn.end()

    def _permissions_changed(self) -> None:
        """What was allowed has to be asked for again."""
        self._permissions = self.host.users.version
        for link in self._links():
            if isinstance(link.context, Inlet):
                link.context.forget_routes()

    def hand_over(self) -> None:
        """What is here of large messages goes to where it is spooled."""
        for link in self._links():
            if isinstance(link.context, Inlet):
                link.context.hand_over()

    def _links(self) -> list[Link]:
        return [link for session in self.connection.sessions for link in session.links]

    def pause_writing(self) -> None:
        self.outflow.pause()

    def resume_writing(self) -> None:
        self.outflow.resume()
        self.intake.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lifesigns.stop()
        self.intake.end()
        self.closing = self._hung_up = True
        if self._gate is not None:
            self._gate.cancel()
            self._gate = None
        self._end_links()
        self.connection.lose()
        depart(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.intake, self.outflow, self.lifesigns, self.interruptions

    def _end_links(self) -> None:
        for link in self._links():
            self.interruptions.end(link, CONNECTION_CLOSE)
        self.interruptions.passed(CONNECTION_CLOSE)
        self.outflow.forget()
        if self.opened:
            self.vhost.release(self)

    def finished(self) -> None:
        """All is said and written; what still comes is discarded."""
        if not self._hung_up:
            self._hung_up = self.closing = True
            hang_up(self, told=False)
            self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    # The engine: the connection.

    def on_output(self) -> None:
        self.outflow.touch()

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
            name = named[len(VHOST) :] if named.startswith(VHOST) else settings.default_vhost
            vhost = host.vhosts.get(name)
            if vhost is None:
                raise NotFound(f"vhost {name} not found")
            if not host.users.may_enter(user, vhost.name):
                raise NotAllowed(f"access to vhost '{vhost.name}' refused for user '{user.name}'")
            limit = settings.max_connections
            if limit and len(host.clients) > limit:
                raise NotAllowed(f"the broker's limit of {limit} connections is reached")
            if host.draining:
                raise NotAllowed("the broker is shutting down")
            theirs = (opened.idle_time_out or 0) / 1000
            if theirs and theirs < LEAST:
                raise NotAllowed(f"an idle time-out of {opened.idle_time_out} ms is too short")
        except PenstockError as error:
            told = error_of(error)
            raise ConnectionFault(told.condition, told.description or "") from None
        self.vhost = vhost
        self.access = Access(host.users, user, vhost.name)
        self.opened = True
        self.host.admission.admit(self.transport)
        product = {Symbol(key): str(value) for key, value in host.product.items()}
        self.connection.open(
            idle_time_out=settings.heartbeat * 1000 or None,
            offered_capabilities=("ANONYMOUS-RELAY",),
            properties=product,
        )
        self.lifesigns.begin(settings.heartbeat, theirs)

    def on_close(self, error: Error | None) -> None:
        if error is not None:
            reason = f"{error.condition} {error.description or ''}".strip()
            _log.info("connection closed", connection=self.name, reason=reason)
        self._leave()

    def _leave(self) -> None:
        """A close has been sent: all ends here, and the client's close is all that is awaited."""
        if not self.closing:
            self.closing = True
            self._end_links()
            self.intake.reopen()
            self.lifesigns.expect(CLOSE_SECONDS, self.transport.abort)

    def on_begin(self, session: Session) -> None:
        """Sessions are the engine's."""

    def on_end(self, session: Session, error: Error | None) -> None:
        for link in session.links:
            self.interruptions.end(link, SESSION_END)
        self.interruptions.passed(SESSION_END, session)

    # The engine: links.

    def on_attach(self, link: Link) -> None:
        assert link.remote is not None
        modes = (link.remote.snd_settle_mode, link.remote.rcv_settle_mode)
        if modes[0] > MIXED or modes[1] > SECOND:
            raise LinkFault(INVALID_FIELD, f"no settle modes are {modes}")
        try:
            if isinstance(link, Sender):
                attach_outlet(self, link)
            else:
                attach_inlet(self, cast(Receiver, link))
        except PenstockError as error:
            raise link_fault(error) from error

    def on_detach(self, link: Link, closed: bool, error: Error | None) -> None:
        self.interruptions.end(link, CLOSED if closed else LINK_DETACH)

    def end_link(self, link: Link, error: Error) -> None:
        """The broker's wish: what the link led to is gone."""
        self.interruptions.end(link, FORCED)
        link.detach(error)

    def on_flow(self, link: Sender) -> None:
        outlet: Outlet = link.context
        self.outflow.thirsty[outlet] = None

    def on_room(self, session: Session) -> None:
        self.outflow.withdraw(session)

    def on_drained(self, link: Receiver) -> None:
        """What a client that sends says of its credit is the engine's."""

    # The engine: deliveries.

    def on_transfer(self, delivery: Incoming, payload: bytes, more: bool) -> None:
        inlet: Inlet = delivery.link.context
        inlet.take(delivery, payload, more)

    def on_abort(self, delivery: Incoming) -> None:
        inlet: Inlet = delivery.link.context
        inlet.abandon()

    def on_outcome(self, delivery: Outgoing) -> None:
        outlet = delivery.link.context
        if isinstance(outlet, Outlet) and delivery in outlet.open:
            del outlet.open[delivery]
            outlet.answer(delivery.context, delivery.state)

    def on_settled(self, delivery: Incoming) -> None:
        inlet = delivery.link.context
        if isinstance(inlet, Inlet) and delivery is not inlet.link.arriving:
            inlet.settled()

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.connection.reader.held

    @held.setter
    def held(self, held: bool) -> None:
        self.connection.reader.held = held

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.outflow.paused else 0

    def blocking(self, reason: str) -> None:
        """There is no word for it in AMQP 1.0: credit is not renewed, and nothing is read."""

    def unblocking(self) -> None:
        """As above."""

    # The client.

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.intake.alarms_changed()

    def _handshake_expired(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def _fail(self, error: Exception) -> None:
        """Something went wrong that is nobody's fault but ours."""
        told = error_of(error)
        self.connection.fail(ConnectionFault(told.condition, told.description or ""))

    def end(self, reason: str) -> None:
        if self.connection.opening is not None:
            self.transport.abort()
            return
        self.connection.close(error_of(ConnectionForced(reason)))
        self._leave()
        self._turn.end()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return [describe_session(self, session) for session in self.connection.sessions]

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)
