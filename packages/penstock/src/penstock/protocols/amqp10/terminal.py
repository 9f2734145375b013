"""The AMQP 1.0 terminal: one socket, and a connection of the protocol engine (`wire/amqp10`).

The engine takes received bytes and calls the terminal with events. `attach.py` resolves the source
or target of a new link: the client sends on an `IncomingLink` and receives on an `OutgoingLink`.
Output, and the contract with drivers, is `writer.py`; authentication is `sasl.py`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.connection_registry import (
    connection_name,
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.flow_control import ReadFlowControl
from penstock.broker.host import Host
from penstock.broker.users import AccessControl
from penstock.core.errors import (
    AccessRefused,
    ConnectionForced,
    NotAllowed,
    NotFound,
    PenstockError,
)
from penstock.core.logs import get_logger
from penstock.protocols.amqp10.attach import attach_incoming_link, attach_outgoing_link
from penstock.protocols.amqp10.errors import to_amqp10_error, to_link_fault
from penstock.protocols.amqp10.incoming_link import IncomingLink
from penstock.protocols.amqp10.management_node import ManagementRequests, ManagementResponses
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.amqp10.recovery import CLOSED, FORCED, LinkRecovery, SuspendedLinks
from penstock.protocols.amqp10.sasl import BrokerAuthenticator
from penstock.protocols.amqp10.transactions import (
    Amqp10Transaction,
    CoordinatorLink,
    find_transaction,
)
from penstock.protocols.amqp10.writer import Amqp10Writer, EncodedMessageCache
from penstock.protocols.connection import (
    CLOSE_SECONDS,
    abort_handshake,
    check_admission,
    describe_channel,
    describe_connection,
    describe_consumer,
    finish_read,
    renewed_user,
)
from penstock.protocols.heartbeats import HeartbeatTimer
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES
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
    TransactionalState,
)
from penstock.wire.amqp10.values import Symbol

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost
    from penstock.wire.amqp10.links import IncomingDelivery, LinkEndpoint, OutgoingDelivery
    from penstock.wire.amqp10.performatives import Amqp10Error, Open
    from penstock.wire.amqp10.session import Amqp10Session


#: A client selects a virtual host by `vhost:NAME` as the host name of its open.
VHOST_PREFIX: Final = "vhost:"

#: Half idle timeouts without data after which the client is gone.
MISSED_HALF_INTERVALS: Final = 4

#: Shorter idle timeouts of a client would keep the broker busy with heartbeats.
MIN_IDLE_TIMEOUT_SECONDS: Final = 0.1

_log = get_logger("penstock.amqp10")


class Amqp10Protocol:
    """What the connections of AMQP 1.0 of one broker share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.message_cache = EncodedMessageCache()
        kernel = host.kernel
        self.recovery = LinkRecovery(
            lambda seconds, done: kernel.write_batch.call_at(kernel.loop.time() + seconds, done)
        )

    def terminal(self) -> asyncio.Protocol:
        return Amqp10Terminal(self)

    def close(self) -> None:
        self.recovery.close()


class Amqp10Terminal(asyncio.Protocol):
    __slots__ = (
        "_authenticator",
        "_discarding",
        "_permissions",
        "_write_batch",
        "access",
        "closing",
        "connection",
        "flow_control",
        "heartbeats",
        "host",
        "next_transaction",
        "opened",
        "output",
        "peer",
        "published",
        "run_link",
        "service",
        "spool_threshold",
        "suspended_links",
        "tls",
        "transactions",
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
        self.output = self.writer.output
        self.heartbeats = HeartbeatTimer(self, HEARTBEAT_FRAME, MISSED_HALF_INTERVALS)
        self.suspended_links = SuspendedLinks(self)
        self.transactions: dict[bytes, Amqp10Transaction] = {}  #: not discharged, by id
        self.next_transaction = 0
        self.published = 0
        self.run_link: IncomingLink | None = None  #: has collected messages and not posted them
        self.opened = False
        self.closing = False
        self._permissions = host.users.version
        self._authenticator: BrokerAuthenticator | None = None
        self._discarding = False  #: input is discarded until the client closes the socket

    @property
    def name(self) -> str:
        return connection_name(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        self._authenticator = BrokerAuthenticator(self)
        self.connection.opening = self._authenticator.opening
        seconds = self.host.kernel.settings.handshake_timeout
        self.heartbeats.expect(seconds, partial(abort_handshake, self))

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self.heartbeats.received = True
        self._write_batch.reader = self.flow_control
        published = self.published
        if self._permissions != self.host.users.version:
            self._permissions = self.host.users.version
            self._forget_permissions()
        try:
            self.connection.receive(data)
        except Exception as error:
            fault = to_amqp10_error(error)
            self.connection.fail(ConnectionFault(fault.condition, fault.description or ""))
        self.post_run()
        writer = self.writer
        if writer.awaiting_credit or writer.acknowledged:
            writer.request()
        finish_read(self, len(data), published)
        self._write_batch.flush()

    def post_run(self) -> None:
        """Post the messages that a link has collected: something else follows them."""
        incoming_link = self.run_link
        if incoming_link is not None:
            self.run_link = None
            try:
                incoming_link.post_run()
            except LinkFault as fault:
                incoming_link.link.session.fail(incoming_link.link, fault)

    def post_partial_buckets(self) -> None:
        for link in self._links():
            if isinstance(link.context, IncomingLink):
                link.context.post_partial_bucket()

    def _links(self) -> list[LinkEndpoint]:
        return [link for session in self.connection.sessions for link in session.links]

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()
        self.flow_control.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.heartbeats.close()
        self.flow_control.end()
        self.closing = self._discarding = True
        if self._authenticator is not None:
            self._authenticator.cancel()
            self._authenticator = None
        self._end_links()
        self.connection.lose()
        self.output.close()
        unregister_connection(self)
        # Reference cycles would keep the terminal until the next garbage collection.
        del self.flow_control, self.writer, self.suspended_links

    def _end_links(self) -> None:
        self.post_run()
        for link in self._links():
            self.suspended_links.end(link, CONNECTION_CLOSE)
        self.suspended_links.limit(CONNECTION_CLOSE)
        self.writer.reset()
        if self.opened:
            self.vhost.release(self)

    def finished(self) -> None:
        """The engine has nothing more to send or to receive, and its output is written."""
        if not self._discarding:
            self._discarding = self.closing = True
            half_close(self, reason_sent=False)
            self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    # Events of the engine: the connection.

    def on_output(self) -> None:
        self.output.schedule()

    def on_open(self, opened: Open) -> None:
        host = self.host
        assert self._authenticator is not None
        user = self._authenticator.user
        settings = host.kernel.settings
        try:
            if user is None:
                raise NotAllowed("the client is not authenticated")
            name = settings.default_vhost
            if (opened.hostname or "").startswith(VHOST_PREFIX):
                name = (opened.hostname or "")[len(VHOST_PREFIX) :]
            vhost = host.vhosts.get(name)
            if vhost is None:
                raise NotFound(f"vhost {name} not found")
            check_admission(host, user, vhost.name)
            idle_timeout = (opened.idle_time_out or 0) / 1000
            if idle_timeout and idle_timeout < MIN_IDLE_TIMEOUT_SECONDS:
                raise NotAllowed(f"an idle time-out of {opened.idle_time_out} ms is too short")
        except PenstockError as error:
            fault = to_amqp10_error(error)
            raise ConnectionFault(fault.condition, fault.description or "") from None
        self.vhost = vhost
        self.access = AccessControl(host.users, user, vhost.name)
        self.opened = True
        host.credential_expiry.watch(self, user, host.kernel.loop)
        self.host.connection_limiter.mark_authenticated(self.transport)
        product = {Symbol(key): str(value) for key, value in host.product.items()}
        self.connection.open(
            idle_time_out=settings.heartbeat * 1000 or None,
            offered_capabilities=("ANONYMOUS-RELAY",),
            properties=product,
        )
        self.heartbeats.start(
            settings.heartbeat, send_every=idle_timeout / 2, check_every=settings.heartbeat / 2
        )

    def on_close(self, error: Amqp10Error | None) -> None:
        if error is not None:
            reason = f"{error.condition} {error.description or ''}".strip()
            _log.info("connection closed", connection=self.name, reason=reason)
        self._await_close()

    def _await_close(self) -> None:
        """A close was sent: only the client's close is still expected."""
        if not self.closing:
            self.closing = True
            self._end_links()
            self.flow_control.reopen()
            self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def on_begin(self, session: Amqp10Session) -> None:
        """The engine manages sessions."""

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        self.post_run()
        for link in session.links:
            self.suspended_links.end(link, SESSION_END)
        self.suspended_links.limit(SESSION_END, session)

    # Events of the engine: links.

    def on_attach(self, link: LinkEndpoint) -> None:
        assert link.remote is not None
        self.post_run()
        modes = (link.remote.snd_settle_mode, link.remote.rcv_settle_mode)
        if modes[0] > MIXED or modes[1] > SECOND:
            raise LinkFault(INVALID_FIELD, f"invalid settle modes (sender, receiver): {modes}")
        try:
            if isinstance(link, SenderLink):
                attach_outgoing_link(self, link)
            else:
                attach_incoming_link(self, cast(ReceiverLink, link))
        except PenstockError as error:
            raise to_link_fault(error) from error

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        self.post_run()
        self.suspended_links.end(link, CLOSED if closed else LINK_DETACH)

    def end_link(self, link: LinkEndpoint, error: Amqp10Error) -> None:
        """The broker detaches the link, because its queue or exchange was deleted."""
        self.suspended_links.end(link, FORCED)
        link.detach(error)

    def on_flow(self, link: SenderLink) -> None:
        context: OutgoingLink | ManagementResponses = link.context
        if isinstance(context, ManagementResponses):
            context.send()
        else:
            self.writer.awaiting_credit[context] = None

    def on_window_open(self, session: Amqp10Session) -> None:
        self.writer.request_session(session)
        for link in session.links:
            if isinstance(link.context, ManagementResponses):
                link.context.send()

    def on_drained(self, link: ReceiverLink) -> None:
        """The engine keeps the credit of senders."""

    # Events of the engine: deliveries.

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        incoming_link: IncomingLink | ManagementRequests | CoordinatorLink = delivery.link.context
        if self.run_link is not None and self.run_link is not incoming_link:
            self.post_run()
        incoming_link.receive(delivery, payload, more)

    def on_abort(self, delivery: IncomingDelivery) -> None:
        incoming_link: IncomingLink | ManagementRequests | CoordinatorLink = delivery.link.context
        self.post_run()
        if isinstance(delivery.state, TransactionalState):
            transaction = self.transactions.get(delivery.state.txn_id)
            if transaction is not None:
                transaction.abandon(delivery)
        incoming_link.abandon()

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        if self.run_link is not None:
            self.post_run()
        outgoing_link = deliveries[0].link.context
        if isinstance(outgoing_link, OutgoingLink) and outgoing_link.accept_run(deliveries):
            return
        for delivery in deliveries:
            self._on_outcome(delivery)

    def _on_outcome(self, delivery: OutgoingDelivery) -> None:
        outgoing_link = delivery.link.context
        if isinstance(outgoing_link, OutgoingLink) and delivery in outgoing_link.open:
            state = delivery.state
            if isinstance(state, TransactionalState):
                try:
                    transaction = find_transaction(self, state)
                except LinkFault as fault:
                    self.end_link(delivery.link, to_amqp10_error(fault))
                else:
                    transaction.retire(outgoing_link, delivery, state.outcome)
                return
            del outgoing_link.open[delivery]
            outgoing_link.settle(delivery.context, delivery.state)

    def on_settled(self, delivery: IncomingDelivery) -> None:
        incoming_link = delivery.link.context
        if isinstance(incoming_link, IncomingLink) and delivery is not incoming_link.link.arriving:
            incoming_link.settled()

    # Flow control.

    @property
    def held(self) -> bool:
        return self.connection.reader.held

    @held.setter
    def held(self, held: bool) -> None:
        self.connection.reader.held = held

    @property
    def unread_bytes(self) -> int:
        return self.output.unread_bytes

    def blocking(self, reason: str) -> None:
        """AMQP 1.0 has no such notification: credit is not renewed, and nothing is read."""

    def unblocking(self) -> None:
        """As above."""

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    def end(self, reason: str) -> None:
        self._close(ConnectionForced(reason))

    def _close(self, error: PenstockError) -> None:
        if self.connection.opening is not None:
            self.transport.abort()
            return
        self.connection.close(to_amqp10_error(error))
        self._await_close()
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    def credential_expired(self) -> None:
        self._close(AccessRefused("credential expired"))

    async def renew_credential(self, token: bytes) -> None:
        """Continue with the permissions of a new token."""
        self.access.user = await renewed_user(self, token)
        if not self.closing:
            self._forget_permissions()

    def _forget_permissions(self) -> None:
        for link in self._links():
            if isinstance(link.context, IncomingLink):
                link.context.clear_producers()  # permissions are checked again

    # Management.

    def describe(self) -> dict[str, Any]:
        remote = self.connection.remote
        properties = (remote.properties if remote else None) or {}
        described = describe_connection(
            self,
            "AMQP 1.0",
            {str(k): v for k, v in properties.items() if isinstance(v, str | int | float)},
            channels=len(self.connection.sessions),
            channel_max=self.connection.channel_max,
            frame_max=self.connection.remote_frame_max,
            timeout=self.heartbeats.interval,
        )
        return {**described, "container_id": remote.container_id if remote else ""}

    def describe_channels(self) -> list[dict[str, Any]]:
        """Sessions are shown as channels."""
        if self.closing:
            return []
        return [self._describe_session(session) for session in self.connection.sessions]

    def _describe_session(self, session: Amqp10Session) -> dict[str, Any]:
        incoming = [link.context for link in session.links if isinstance(link, ReceiverLink)]
        outgoing = [one for one in self.writer.outgoing_links if one.link.session is session]
        return describe_channel(
            self,
            session.channel,
            consumer_count=len(outgoing),
            messages_unacknowledged=len(session.outgoing),
            messages_unconfirmed=sum(one.unsettled for one in incoming if one is not None),
            confirm=bool(incoming),
        )

    def describe_consumers(self) -> list[dict[str, Any]]:
        if self.closing:
            return []
        return [
            describe_consumer(
                self,
                one.link.name,
                one.queue,
                channel=one.link.session.channel,
                ack_required=not one.presettled,
                prefetch=max(0, one.link.credit),
                exclusive=False,
                arguments={key: str(value) for key, value in one.arguments.items()},
            )
            for one in self.writer.outgoing_links
        ]
