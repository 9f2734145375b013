"""Links: one-way roads for messages, with credit; and the deliveries on them.

A `Sender` sends while it has credit, which its peer gives; a `Receiver` gives credit and takes
what comes. Either may have been asked for by the peer (`accept` or `refuse` it) or by us. What
deliveries mean, and when they are settled, is the owner's; that credit is kept to, is the link's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.wire.amqp10.conditions import Fault
from penstock.wire.amqp10.heads import aborted_frame, link_flow_frame
from penstock.wire.amqp10.outward import ROUND
from penstock.wire.amqp10.performatives import (
    FIRST,
    RECEIVER,
    SENDER,
    SETTLED,
    Attach,
    Detach,
)
from penstock.wire.amqp10.states import Error, State

if TYPE_CHECKING:
    from penstock.wire.amqp10.session import Session
    from penstock.wire.amqp10.termini import Coordinator, Source, Target


class Outgoing:
    """A delivery on its way out."""

    __slots__ = ("context", "id", "link", "resumes", "settled", "state", "tag")

    def __init__(self, link: Sender, tag: int, settled: bool, context: Any) -> None:
        self.link = link
        self.id = -1  #: until its first transfer leaves
        self.tag = tag
        self.settled = settled
        self.state: State | None = None  #: what the peer has said of it
        self.resumes = False  #: it was sent before, and the link interrupted
        self.context = context  #: the owner's

    def settle(self, state: State | None = None) -> None:
        """Be done with it, and tell the peer."""
        if not self.settled:
            self.settled = True
            session = self.link.session
            if session.outgoing.pop(self.id, None) is not None:
                session.dispose(SENDER, self.id, self.id, True, state or self.state)


class Incoming:
    """A delivery on its way in."""

    __slots__ = ("context", "id", "link", "message_format", "resumed", "second", "settled", "tag")

    def __init__(self, link: Receiver, number: int, tag: bytes, settled: bool) -> None:
        self.link = link
        self.id = number
        self.tag = tag
        self.settled = settled  #: the sender does not want to hear of it
        self.second = link.rcv_settle_mode != FIRST  #: the sender settles before we do
        self.message_format = 0
        self.resumed = False  #: of a link that was interrupted
        self.context: Any = None  #: the owner's

    def settle(self, state: State) -> None:
        """Say what became of it. The peer may have to settle first."""
        if not self.settled:
            session = self.link.session
            if self.second:
                session.dispose(RECEIVER, self.id, self.id, False, state)
            elif session.incoming.pop(self.id, None) is not None:
                self.settled = True
                session.dispose(RECEIVER, self.id, self.id, True, state)


class Link:
    """What a sender and a receiver have in common."""

    __slots__ = (
        "_detached",
        "attached",
        "context",
        "credit",
        "delivery_count",
        "handle",
        "name",
        "rcv_settle_mode",
        "remote",
        "remote_handle",
        "session",
        "snd_settle_mode",
    )

    role: bool

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.handle = -1
        self.remote_handle = -1
        self.remote: Attach | None = None  #: as the peer attached it
        self.attached = False  #: by us
        self.snd_settle_mode = 2
        self.rcv_settle_mode = FIRST
        self.delivery_count = 0
        self.credit = 0
        self._detached = False  #: by us
        self.context: Any = None  #: the owner's

    @property
    def live(self) -> bool:
        """Attached on both sides, and not on its way out."""
        return self.attached and self.remote is not None and not self._detached

    def attach(self, attach: Attach) -> None:
        """Send our half; the connection fills in the handle."""
        self.handle = attach.handle = self.session.new_handle(self)
        self.attached = True
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.session.send(attach)

    def _answer(self, source: Source | None, target: Target | Coordinator | None) -> Attach:
        assert self.remote is not None, "there is nothing to answer"
        return Attach(
            self.name,
            0,
            self.role,
            snd_settle_mode=self.remote.snd_settle_mode,
            rcv_settle_mode=self.remote.rcv_settle_mode,
            source=source,
            target=target,
            initial_delivery_count=None if self.role else self.delivery_count,
        )

    def refuse(self, fault: Fault) -> None:
        """The peer wants a link that it cannot have: attach, so that there is something to end."""
        assert self.remote is not None, "there is nothing to answer"
        if self.role is SENDER:
            answer = self._answer(None, self.remote.target)
        else:
            answer = self._answer(self.remote.source, None)
        self.attach(answer)
        self.detach(Error(fault.condition, fault.description or None))

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """End it, or only take it off this session. What still comes on it is not looked at."""
        if self._detached:
            return
        self._detached = True
        if self.attached:
            self.session.forget_deliveries(self)
            self.session.send(Detach(self.handle, closed, error))
        self.session.release_handle(self)

    @property
    def detached(self) -> bool:
        return self._detached


class Sender(Link):
    """The sending end: we send, the peer has the credit to give."""

    __slots__ = ("_tag", "draining")

    role = SENDER

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self._tag = 0
        self.draining = False  #: credit is to be used now or given up

    def accept(
        self,
        source: Source,
        target: Target | Coordinator | None,
        *,
        unsettled: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        answer = self._answer(source, target)
        answer.unsettled = unsettled
        answer.properties = properties
        self.attach(answer)

    def new(self, settled: bool, context: Any = None, tag: int | None = None) -> Outgoing:
        """The next delivery; it takes one credit."""
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) % ROUND
        if tag is None:
            self._tag = tag = (self._tag + 1) % ROUND
        return Outgoing(self, tag, settled or self.snd_settle_mode == SETTLED, context)

    def resume(self, tag: int, state: State | None, settled: bool, context: Any) -> Outgoing:
        """A delivery that was sent before the link was interrupted; it takes one credit."""
        delivery = self.new(settled, context, tag)
        delivery.state = state
        delivery.resumes = True
        return delivery

    def number_from(self, tag: int) -> None:
        """Tags up to this one are taken, by deliveries of before an interruption."""
        self._tag = max(self._tag, tag)

    def send(self, delivery: Outgoing, payload: bytes | memoryview, more: bool = False) -> None:
        """A delivery's payload, or the next piece of it; in as many transfers as it takes."""
        self.session.transfer(delivery, payload, more)

    def abort(self, delivery: Outgoing) -> None:
        """Half of it is sent, and the rest will not be."""
        self.session.outgoing.pop(delivery.id, None)
        delivery.settled = True
        if delivery.id >= 0:
            self.session.connection.write(aborted_frame(self.session.channel, self.handle))

    def drained(self) -> None:
        """There is nothing to send: give up what credit is left."""
        self.delivery_count = (self.delivery_count + self.credit) % ROUND
        self.credit = 0
        self.tell()

    def tell(self) -> None:
        """Say where the link stands."""
        session = self.session
        session.connection.write(
            link_flow_frame(
                session.channel,
                *session.flow_state(),
                self.handle,
                self.delivery_count,
                self.credit,
                drain=self.draining,
            )
        )


class Receiver(Link):
    """The receiving end: we give credit, the peer sends."""

    __slots__ = ("arriving", "drain", "max_message_size")

    role = RECEIVER

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.arriving: Incoming | None = None  #: a delivery of which more is to come
        self.drain = False
        self.max_message_size = 0

    def accept(
        self,
        source: Source | None,
        target: Target | Coordinator,
        *,
        max_message_size: int = 0,
        unsettled: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        answer = self._answer(source, target)
        answer.max_message_size = self.max_message_size = max_message_size
        answer.unsettled = unsettled
        answer.properties = properties
        self.attach(answer)

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """The peer may send so many more from now on; with `drain`, now or not at all."""
        self.credit = credit
        self.drain = drain
        self.tell()

    def tell(self, *, echo: bool = False) -> None:
        """Say where the link stands; with `echo`, and be told the same."""
        session = self.session
        session.connection.write(
            link_flow_frame(
                session.channel,
                *session.flow_state(),
                self.handle,
                self.delivery_count,
                self.credit,
                drain=self.drain,
                echo=echo,
            )
        )
