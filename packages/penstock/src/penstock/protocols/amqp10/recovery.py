"""Link recovery: unsettled deliveries of a link survive its detach or the loss of its connection.

By default the unsettled deliveries of a link end with its session. If the expiry policy or the
timeout of its terminus allows more, they are kept in memory for up to `MAX_EXPIRY_SECONDS`. A
client that attaches a link of the same name again is sent their state, and neither side repeats
what the other has. Of a source, deliveries are kept and stay out of the queue. Of a target, the
tags of accepted deliveries are kept that the sender has not settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp10.incoming_link import IncomingLink
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.amqp10.transactions import CoordinatorLink
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    CONNECTION_CLOSE,
    DELIVERY_STATES,
    LINK_DETACH,
    NEVER,
    SESSION_END,
    DeliveryState,
    LinkSource,
    LinkTarget,
)
from penstock.wire.amqp10.values import Described

if TYPE_CHECKING:
    from penstock.broker.contract import Delivery
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import LinkEndpoint
    from penstock.wire.amqp10.session import Amqp10Session


#: No other consumer gets the deliveries of a suspended link for this long.
MAX_EXPIRY_SECONDS: Final = 300

#: When there are more, the one suspended first expires.
MAX_SUSPENDED_LINKS: Final = 4096

#: The events by which a terminus can expire, in the order in which they occur.
EXPIRY_EVENTS: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)


@dataclass(frozen=True, slots=True)
class LinkName:
    """Identifies a link across connections."""

    vhost: str
    user: str
    container: str
    link: str
    role: bool


@dataclass(slots=True)
class SuspendedSource:
    """Unsettled deliveries to a client, by tag."""

    outgoing_link: OutgoingLink
    deliveries: dict[int, Delivery]

    def release(self) -> None:
        for delivery in self.deliveries.values():
            self.outgoing_link.driver.channel_failure(self.outgoing_link, delivery, True)


@dataclass(slots=True)
class SuspendedTarget:
    """Tags of deliveries from a client that has not settled them."""

    accepted: set[bytes] = field(default_factory=set)
    waiting: dict[int, bytes] = field(default_factory=dict)  #: unconfirmed, by receipt

    def confirm(self, receipt: int) -> None:
        tag = self.waiting.pop(receipt, None)
        if tag is not None:
            self.accepted.add(tag)

    def release(self) -> None:
        """There is nothing to release."""


SuspendedTerminus = SuspendedSource | SuspendedTarget


def terminus_expiry_seconds(terminus: LinkSource | LinkTarget, event: str) -> int:
    """How long a terminus is kept after an event; 0 if it expires."""
    if EXPIRY_EVENTS.index(event) < EXPIRY_EVENTS.index(terminus.expiry_policy):
        return MAX_EXPIRY_SECONDS
    return min(terminus.timeout, MAX_EXPIRY_SECONDS)


class LinkRecovery:
    """The suspended links of one broker."""

    def __init__(self, after: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._after = after  #: schedules a callback
        self._suspended: dict[LinkName, SuspendedTerminus] = {}
        self._timers: dict[LinkName, asyncio.TimerHandle] = {}

    def suspend(self, name: LinkName, suspended: SuspendedTerminus, seconds: int) -> None:
        self.expire(name)
        if len(self._suspended) >= MAX_SUSPENDED_LINKS:
            self.expire(next(iter(self._suspended)))
        self._suspended[name] = suspended
        self.limit(name, suspended, seconds)

    def limit(self, name: LinkName, suspended: SuspendedTerminus, seconds: int) -> None:
        """Set the time left, unless the link was resumed or has expired."""
        if self._suspended.get(name) is not suspended:
            return
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if seconds <= 0:
            self.expire(name)
        else:
            self._timers[name] = self._after(seconds, lambda: self.expire(name))

    def resume(self, name: LinkName) -> SuspendedTerminus | None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        return self._suspended.pop(name, None)

    def expire(self, name: LinkName) -> None:
        suspended = self.resume(name)
        if suspended is not None:
            suspended.release()

    def close(self) -> None:
        for name in list(self._suspended):
            self.expire(name)


#: Closed by the client, not only detached.
CLOSED: Final = "closed"
#: Detached by the broker.
FORCED: Final = "forced"


class SuspendedLinks:
    """The links of one connection: ends them, and suspends those that can be resumed."""

    __slots__ = ("_suspended", "_terminal")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        self._suspended: list[
            tuple[Amqp10Session, LinkName, SuspendedTerminus, LinkSource | LinkTarget]
        ] = []

    def end(self, link: LinkEndpoint, event: str) -> None:
        """The event is one of `EXPIRY_EVENTS`, `CLOSED` or `FORCED`."""
        context, link.context = link.context, None
        if isinstance(context, IncomingLink):
            self._end_incoming_link(context, event)
        elif isinstance(context, CoordinatorLink):
            context.end()
        elif isinstance(context, OutgoingLink):
            self._terminal.writer.remove(context)
            self._end_outgoing_link(context, event)

    def limit(self, event: str, session: Amqp10Session | None = None) -> None:
        """Expire what ends with this event; with a session, only what belongs to it."""
        recovery = self._terminal.service.recovery
        for of, name, suspended, terminus in self._suspended:
            if session is None or of is session:
                recovery.limit(name, suspended, terminus_expiry_seconds(terminus, event))

    def _end_outgoing_link(self, outgoing_link: OutgoingLink, event: str) -> None:
        link = outgoing_link.link
        assert link.remote is not None
        source = link.remote.source
        if source is not None and event in EXPIRY_EVENTS and outgoing_link.is_resumable:
            seconds = terminus_expiry_seconds(source, event)
            deliveries = outgoing_link.take_open() if seconds else {}
            if deliveries:
                suspended = SuspendedSource(outgoing_link, deliveries)
                self._suspend(link, suspended, source, seconds)
        outgoing_link.end()
        vhost = self._terminal.vhost
        if outgoing_link.ends == "reply":
            vhost.replies.pop(outgoing_link.queue, None)
        queue = vhost.queues.get(outgoing_link.queue)
        if queue is not None and (
            outgoing_link.ends == "detach"
            or (outgoing_link.ends == "close" and event == CLOSED and not queue.consumer_count)
            or (outgoing_link.ends == "empty" and not queue.message_count)
        ):
            vhost.delete_queue(outgoing_link.queue)

    def _end_incoming_link(self, incoming_link: IncomingLink, event: str) -> None:
        link = incoming_link.link
        assert link.remote is not None
        target = link.remote.target
        if isinstance(target, LinkTarget) and event in EXPIRY_EVENTS:
            seconds = terminus_expiry_seconds(target, event)
            suspended = SuspendedTarget()
            for number, delivery in link.session.incoming.items():
                if delivery.link is link and delivery.context == ACCEPTED:
                    suspended.accepted.add(delivery.tag)
                elif delivery.link is link and delivery is not link.arriving:
                    suspended.waiting[number + 1] = delivery.tag
            if seconds and (suspended.accepted or suspended.waiting):
                incoming_link.suspended = suspended
                self._suspend(link, suspended, target, seconds)
        incoming_link.end()

    def _suspend(
        self,
        link: LinkEndpoint,
        suspended: SuspendedTerminus,
        terminus: LinkSource | LinkTarget,
        seconds: int,
    ) -> None:
        name = link_name(self._terminal, link)
        self._suspended.append((link.session, name, suspended, terminus))
        self._terminal.service.recovery.suspend(name, suspended, seconds)


def link_name(terminal: Amqp10Terminal, link: LinkEndpoint) -> LinkName:
    assert terminal.connection.remote is not None
    container = terminal.connection.remote.container_id
    return LinkName(terminal.vhost.name, terminal.access.user.name, container, link.name, link.role)


def resume_outgoing_link(
    terminal: Amqp10Terminal, outgoing_link: OutgoingLink
) -> dict[Any, Any] | None:
    """Resume a suspended source; returns its unsettled map for the attach.

    Deliveries that the client does not know are requeued.
    """
    link = outgoing_link.link
    assert link.remote is not None
    suspended = terminal.service.recovery.resume(link_name(terminal, link))
    if not isinstance(suspended, SuspendedSource):
        return None
    remote_unsettled = link.remote.unsettled or {}
    link.reserve_tags(max(suspended.deliveries))
    unsettled: dict[Any, Any] = {}
    if suspended.outgoing_link.driver is outgoing_link.driver:
        for number in list(suspended.deliveries):
            tag = number.to_bytes(4, "big")
            if tag in remote_unsettled:
                state = _decode_state(remote_unsettled[tag])
                outgoing_link.resuming.append((number, suspended.deliveries.pop(number), state))
                unsettled[tag] = None
    suspended.release()
    return unsettled or None


def resume_incoming_link(
    terminal: Amqp10Terminal, incoming_link: IncomingLink
) -> dict[Any, Any] | None:
    """Resume a suspended target; returns its unsettled map for the attach: accepted deliveries."""
    link = incoming_link.link
    assert link.remote is not None
    suspended = terminal.service.recovery.resume(link_name(terminal, link))
    if not isinstance(suspended, SuspendedTarget):
        return None
    incoming_link.known = suspended.accepted & (link.remote.unsettled or {}).keys()
    return {tag: DELIVERY_STATES.described(ACCEPTED) for tag in incoming_link.known} or None


def _decode_state(value: Any) -> DeliveryState | None:
    """A state in the unsettled map of a client."""
    if not isinstance(value, Described):
        return None
    try:
        state: DeliveryState = DELIVERY_STATES.read(value)
    except (TypeError, DecodeError):
        return None
    return state
