"""Links that were interrupted: what was open on them is kept until their time is over.

A link that its client has taken off without closing it, or whose connection was lost, may come back
under its name. What becomes of its open deliveries meanwhile is its terminus' to say: by default
they end with the session. A terminus that is to last longer, by its expiry policy or its timeout,
has them kept here: the client is told which they are when it attaches again, and neither side sends
twice what the other already has. Nothing is kept longer than `MAX_EXPIRY_SECONDS`, and none of it
outlives the broker.

Of a source, deliveries are kept and stay out of the queue. Of a target, it is the tags of what was
taken in, whose sender has not settled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp10.incoming_link import IncomingLink
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
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


#: Seconds that deliveries are kept at most: while they are, nobody else gets them.
MAX_EXPIRY_SECONDS: Final = 300

#: Links that are kept at most; beyond them the first to have been interrupted is let go.
MAX_SUSPENDED_LINKS: Final = 4096

#: The events that end a terminus, in the order they come.
EXPIRY_EVENTS: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)


@dataclass(frozen=True, slots=True)
class LinkName:
    """By which an interrupted link is found again."""

    vhost: str
    user: str
    container: str
    link: str
    role: bool


@dataclass(slots=True)
class SuspendedSource:
    """The open deliveries of a link that a client receives on, by their tags."""

    outgoing_link: OutgoingLink
    deliveries: dict[int, Delivery]

    def release(self) -> None:
        for delivery in self.deliveries.values():
            self.outgoing_link.driver.channel_failure(self.outgoing_link, delivery, True)


@dataclass(slots=True)
class SuspendedTarget:
    """The tags of what is safe, and was sent on a link whose client has not settled it."""

    accepted: set[bytes] = field(default_factory=set)
    waiting: dict[int, bytes] = field(default_factory=dict)  #: not safe yet, by receipt

    def confirm(self, receipt: int) -> None:
        tag = self.waiting.pop(receipt, None)
        if tag is not None:
            self.accepted.add(tag)

    def release(self) -> None:
        """Nobody asked."""


SuspendedTerminus = SuspendedSource | SuspendedTarget


def terminus_expiry_seconds(terminus: LinkSource | LinkTarget, event: str) -> int:
    """For how many seconds a terminus is kept after an event; 0 when that is its end."""
    if EXPIRY_EVENTS.index(event) < EXPIRY_EVENTS.index(terminus.expiry_policy):
        return MAX_EXPIRY_SECONDS
    return min(terminus.timeout, MAX_EXPIRY_SECONDS)


class LinkRecovery:
    """The interrupted links of one broker."""

    __slots__ = ("_at", "_suspended", "_timers")

    def __init__(self, at: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._at = at  #: have something done in so many seconds
        self._suspended: dict[LinkName, SuspendedTerminus] = {}
        self._timers: dict[LinkName, asyncio.TimerHandle] = {}

    def keep(self, name: LinkName, suspended: SuspendedTerminus, seconds: int) -> None:
        self.expire(name)
        if len(self._suspended) >= MAX_SUSPENDED_LINKS:
            self.expire(next(iter(self._suspended)))
        self._suspended[name] = suspended
        self.limit(name, suspended, seconds)

    def limit(self, name: LinkName, suspended: SuspendedTerminus, seconds: int) -> None:
        """It is kept so much longer, from now on; unless it is back, or gone."""
        if self._suspended.get(name) is not suspended:
            return
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if seconds <= 0:
            self.expire(name)
        else:
            self._timers[name] = self._at(seconds, lambda: self.expire(name))

    def take(self, name: LinkName) -> SuspendedTerminus | None:
        """It is back."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        return self._suspended.pop(name, None)

    def expire(self, name: LinkName) -> None:
        suspended = self.take(name)
        if suspended is not None:
            suspended.release()

    def close(self) -> None:
        for name in list(self._suspended):
            self.expire(name)


# The end of a link, and its return: what goes with it, what is put back, what is kept for later.
#
# `recovery.py` keeps what an interrupted link has open; here is what is kept of an inlet or an
# outlet, and how it goes on from there when its client is back.

#: Closed for good by its client, rather than taken off.
CLOSED: Final = "closed"
#: Ended by the broker, because what it led to will not have it.
FORCED: Final = "forced"


class SuspendedLinks:
    """The links of one connection that have been interrupted while it lasted."""

    __slots__ = ("_suspended", "_terminal")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        self._suspended: list[
            tuple[Amqp10Session, LinkName, SuspendedTerminus, LinkSource | LinkTarget]
        ] = []

    def end(self, link: LinkEndpoint, event: str) -> None:
        """A link ends, by an event that a terminus may outlast, or closed."""
        context, link.context = link.context, None
        if isinstance(context, IncomingLink):
            self._end_incoming_link(context, event)
        elif isinstance(context, OutgoingLink):
            self._terminal.writer.leave(context)
            self._end_outgoing_link(context, event)

    def passed(self, event: str, session: Amqp10Session | None = None) -> None:
        """What ends with this event has ended; if with a session, with that one."""
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
        self._terminal.service.recovery.keep(name, suspended, seconds)


def link_name(terminal: Amqp10Terminal, link: LinkEndpoint) -> LinkName:
    assert terminal.connection.remote is not None
    container = terminal.connection.remote.container_id
    return LinkName(terminal.vhost.name, terminal.access.user.name, container, link.name, link.role)


def resume_outgoing_link(
    terminal: Amqp10Terminal, outgoing_link: OutgoingLink
) -> dict[Any, Any] | None:
    """A link to receive on is back, perhaps; returns what we know of its open deliveries.

    Those that the client has not heard of go back to the queue, and come again as new.
    """
    link = outgoing_link.link
    assert link.remote is not None
    suspended = terminal.service.recovery.take(link_name(terminal, link))
    if not isinstance(suspended, SuspendedSource):
        return None
    theirs = link.remote.unsettled or {}
    link.reserve_tags(max(suspended.deliveries))
    unsettled: dict[Any, Any] = {}
    if suspended.outgoing_link.driver is outgoing_link.driver:
        for number in list(suspended.deliveries):
            tag = number.to_bytes(4, "big")
            if tag in theirs:
                state = _decode_state(theirs[tag])
                outgoing_link.resuming.append((number, suspended.deliveries.pop(number), state))
                unsettled[tag] = None
    suspended.release()
    return unsettled or None


def resume_incoming_link(
    terminal: Amqp10Terminal, incoming_link: IncomingLink
) -> dict[Any, Any] | None:
    """A link to send on is back, perhaps; returns what was taken in, and need not come again."""
    link = incoming_link.link
    assert link.remote is not None
    suspended = terminal.service.recovery.take(link_name(terminal, link))
    if not isinstance(suspended, SuspendedTarget):
        return None
    incoming_link.known = suspended.accepted & (link.remote.unsettled or {}).keys()
    return {tag: DELIVERY_STATES.described(ACCEPTED) for tag in incoming_link.known} or None


def _decode_state(value: Any) -> DeliveryState | None:
    """What a client says of a delivery in its map of unsettled ones."""
    if not isinstance(value, Described):
        return None
    try:
        state: DeliveryState = DELIVERY_STATES.read(value)
    except (TypeError, DecodeError):
        return None
    return state
