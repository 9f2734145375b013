"""The end of a link, and its return: what goes with it, what is put back, what is kept for later.

`recovery.py` keeps what an interrupted link has open; here is what is kept of an inlet or an
outlet, and how it goes on from there when its client is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.terminals.amqp10.inlet import Inlet
from penstock.terminals.amqp10.outlet import Outlet
from penstock.terminals.amqp10.recovery import EVENTS, Kept, KeptSource, KeptTarget, Name, keeps
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.states import ACCEPTED, STATES, State
from penstock.wire.amqp10.termini import Source, Target
from penstock.wire.amqp10.values import Described

if TYPE_CHECKING:
    from penstock.terminals.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import Link
    from penstock.wire.amqp10.session import Session

#: Closed for good by its client, rather than taken off.
CLOSED: Final = "closed"
#: Ended by the broker, because what it led to will not have it.
FORCED: Final = "forced"


class Interruptions:
    """The links of one connection that have been interrupted while it lasted."""

    __slots__ = ("_kept", "_terminal")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        self._kept: list[tuple[Session, Name, Kept, Source | Target]] = []

    def end(self, link: Link, event: str) -> None:
        """A link ends, by an event that a terminus may outlast, or closed."""
        context, link.context = link.context, None
        if isinstance(context, Inlet):
            self._end_inlet(context, event)
        elif isinstance(context, Outlet):
            self._terminal.outflow.leave(context)
            self._end_outlet(context, event)

    def passed(self, event: str, session: Session | None = None) -> None:
        """What ends with this event has ended; if with a session, with that one."""
        recovery = self._terminal.service.recovery
        for of, name, kept, terminus in self._kept:
            if session is None or of is session:
                recovery.limit(name, kept, keeps(terminus, event))

    def _end_outlet(self, outlet: Outlet, event: str) -> None:
        link = outlet.link
        assert link.remote is not None
        source = link.remote.source
        if source is not None and event in EVENTS and outlet.lasts:
            seconds = keeps(source, event)
            deliveries = outlet.take_open() if seconds else {}
            if deliveries:
                kept = KeptSource(outlet, deliveries)
                self._keep(link, kept, source, seconds)
        outlet.end()
        vhost = self._terminal.vhost
        queue = vhost.queues.get(outlet.queue)
        if queue is not None and (
            outlet.ends == "detach"
            or (outlet.ends == "close" and event == CLOSED and not queue.consumer_count)
            or (outlet.ends == "empty" and not queue.message_count)
        ):
            vhost.delete_queue(outlet.queue)

    def _end_inlet(self, inlet: Inlet, event: str) -> None:
        link = inlet.link
        assert link.remote is not None
        target = link.remote.target
        if isinstance(target, Target) and event in EVENTS:
            seconds = keeps(target, event)
            kept = KeptTarget()
            for number, delivery in link.session.incoming.items():
                if delivery.link is link and delivery.context == ACCEPTED:
                    kept.accepted.add(delivery.tag)
                elif delivery.link is link and delivery is not link.arriving:
                    kept.waiting[number + 1] = delivery.tag
            if seconds and (kept.accepted or kept.waiting):
                inlet.kept = kept
                self._keep(link, kept, target, seconds)
        inlet.end()

    def _keep(self, link: Link, kept: Kept, terminus: Source | Target, seconds: int) -> None:
        name = name_of(self._terminal, link)
        self._kept.append((link.session, name, kept, terminus))
        self._terminal.service.recovery.keep(name, kept, seconds)


def name_of(terminal: Amqp10Terminal, link: Link) -> Name:
    assert terminal.connection.remote is not None
    container = terminal.connection.remote.container_id
    return Name(terminal.vhost.name, terminal.access.user.name, container, link.name, link.role)


def resume_outlet(terminal: Amqp10Terminal, outlet: Outlet) -> dict[Any, Any] | None:
    """A link to receive on is back, perhaps; returns what we know of its open deliveries.

    Those that the client has not heard of go back to the queue, and come again as new.
    """
    link = outlet.link
    assert link.remote is not None
    kept = terminal.service.recovery.take(name_of(terminal, link))
    if not isinstance(kept, KeptSource):
        return None
    theirs = link.remote.unsettled or {}
    link.number_from(max(kept.deliveries))
    unsettled: dict[Any, Any] = {}
    if kept.outlet.driver is outlet.driver:
        for number in list(kept.deliveries):
            tag = number.to_bytes(4, "big")
            if tag in theirs:
                state = _state(theirs[tag])
                outlet.resuming.append((number, kept.deliveries.pop(number), state))
                unsettled[tag] = None
    kept.let_go()
    return unsettled or None


def resume_inlet(terminal: Amqp10Terminal, inlet: Inlet) -> dict[Any, Any] | None:
    """A link to send on is back, perhaps; returns what was taken in, and need not come again."""
    link = inlet.link
    assert link.remote is not None
    kept = terminal.service.recovery.take(name_of(terminal, link))
    if not isinstance(kept, KeptTarget):
        return None
    inlet.known = kept.accepted & (link.remote.unsettled or {}).keys()
    return {tag: STATES.described(ACCEPTED) for tag in inlet.known} or None


def _state(value: Any) -> State | None:
    """What a client says of a delivery in its map of unsettled ones."""
    if not isinstance(value, Described):
        return None
    try:
        state: State = STATES.read(value)
    except (TypeError, DecodeError):
        return None
    return state
