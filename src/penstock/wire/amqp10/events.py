"""What a connection tells its owner, be it a terminal of the broker or a client.

Every event comes while bytes are being read, in the order of the frames, and returns at once. An
owner that raises a `Fault` ends the link, session or connection that the fault belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.wire.amqp10.links import Incoming, Link, Outgoing, Receiver, Sender
    from penstock.wire.amqp10.performatives import Open
    from penstock.wire.amqp10.session import Session
    from penstock.wire.amqp10.states import Error


class Events(Protocol):
    def on_output(self) -> None:
        """There is something in the connection's `out`, and there was nothing before."""

    def on_open(self, opened: Open) -> None:
        """The peer has introduced itself: answer by `Connection.open` unless we were first."""

    def on_close(self, error: Error | None) -> None:
        """The peer is done; our close is on its way too."""

    def on_begin(self, session: Session) -> None:
        """A session is there on both sides: the peer's, which has been answered, or ours."""

    def on_end(self, session: Session, error: Error | None) -> None:
        """A session ends, and all that was on it: the peer or a fault has ended it."""

    def on_attach(self, link: Link) -> None:
        """The peer wants a link, to be accepted or refused; or has answered ours (`attached`)."""

    def on_detach(self, link: Link, closed: bool, error: Error | None) -> None:
        """A link ends: the peer has taken it off, or a fault has."""

    def on_flow(self, link: Sender) -> None:
        """The peer has given a sender credit, or asks it to use it up (`draining`)."""

    def on_room(self, session: Session) -> None:
        """What waited for the session's window has left, and there is room for more."""

    def on_transfer(self, delivery: Incoming, payload: bytes, more: bool) -> None:
        """A piece of a delivery; the last, unless there is more."""

    def on_abort(self, delivery: Incoming) -> None:
        """The rest of a delivery will not come, and it is to be forgotten."""

    def on_outcome(self, delivery: Outgoing) -> None:
        """The peer has settled a delivery of ours, or said what became of it (`state`)."""

    def on_settled(self, delivery: Incoming) -> None:
        """The peer has settled a delivery that it sent: it waits for no more answer."""

    def on_drained(self, link: Receiver) -> None:
        """A sender has said how far it is; credit that it was to drain may be gone."""
