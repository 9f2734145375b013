"""Two ends of a connection in memory: what one writes, the other receives.

`End` notes what the engine tells it and answers what the peer asks, unless a test does. `pair`
makes two that have opened a connection.
"""

from __future__ import annotations

from typing import Any

from penstock.wire.amqp10.connection import Amqp10Connection
from penstock.wire.amqp10.errors import LinkFault
from penstock.wire.amqp10.links import (
    IncomingDelivery,
    LinkEndpoint,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from penstock.wire.amqp10.performatives import Amqp10Error, Attach, LinkSource, LinkTarget, Open
from penstock.wire.amqp10.session import Amqp10Session


class End:
    def __init__(self, name: str, frame_max: int = 4096) -> None:
        self.connection = Amqp10Connection(self, name, frame_max=frame_max, channel_max=7)
        self.told: list[tuple[Any, ...]] = []
        self.payloads: list[bytes] = []
        self.refuses: LinkFault | None = None  #: every link the peer wants
        self.outputs = 0

    def taken(self) -> bytes:
        """What is to be written, no longer here."""
        out = b"".join(self.connection.out)
        self.connection.out.clear()
        self.connection.out_bytes = 0
        return out

    def names(self) -> list[str]:
        return [one[0] for one in self.told]

    # What the engine tells.

    def on_output(self) -> None:
        self.outputs += 1

    def on_open(self, opened: Open) -> None:
        self.told.append(("open", opened))
        if not self.connection.opened:
            self.connection.open()

    def on_close(self, error: Amqp10Error | None) -> None:
        self.told.append(("close", error))

    def on_begin(self, session: Amqp10Session) -> None:
        self.told.append(("begin", session))

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        self.told.append(("end", session, error))

    def on_attach(self, link: LinkEndpoint) -> None:
        self.told.append(("attach", link))
        if link.attached:
            return
        if self.refuses is not None:
            raise self.refuses
        assert link.remote is not None
        if isinstance(link, SenderLink):
            link.accept(link.remote.source or LinkSource(), link.remote.target)
        elif isinstance(link, ReceiverLink):
            link.accept(link.remote.source, LinkTarget("there"))

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        self.told.append(("detach", link, closed, error))

    def on_flow(self, link: SenderLink) -> None:
        self.told.append(("flow", link))

    def on_window_open(self, session: Amqp10Session) -> None:
        self.told.append(("room", session))

    def on_drained(self, link: ReceiverLink) -> None:
        self.told.append(("drained", link))

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        self.told.append(("transfer", delivery, payload, more))
        self.payloads.append(payload)

    def on_abort(self, delivery: IncomingDelivery) -> None:
        self.told.append(("abort", delivery))

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        self.told += [("outcome", delivery) for delivery in deliveries]

    def on_settled(self, delivery: IncomingDelivery) -> None:
        self.told.append(("settled", delivery))


class Pair:
    """Two ends; `run` carries bytes both ways until neither has any more to say."""

    def __init__(self, frame_max: int = 4096) -> None:
        self.here = End("here", frame_max)
        self.there = End("there", frame_max)
        for end in (self.here, self.there):
            end.connection.reader.awaits_header = False
        self.here.connection.open()
        self.run()

    def run(self) -> None:
        while True:
            out, back = self.here.taken(), self.there.taken()
            if not out and not back:
                return
            self.there.connection.receive(out)
            self.here.connection.receive(back)

    def session(self) -> Amqp10Session:
        session = self.here.connection.session()
        session.begin()
        self.run()
        return session

    def sender(
        self, session: Amqp10Session | None = None, name: str = "s", **attach: Any
    ) -> SenderLink:
        link = (session or self.session()).sender(name)
        link.attach(
            Attach(
                name,
                0,
                False,
                source=LinkSource("here"),
                target=LinkTarget("there"),
                initial_delivery_count=0,
                **attach,
            )
        )
        self.run()
        return link

    def receiver(
        self, session: Amqp10Session | None = None, name: str = "r", **attach: Any
    ) -> ReceiverLink:
        link = (session or self.session()).receiver(name)
        link.attach(
            Attach(name, 0, True, source=LinkSource("there"), target=LinkTarget("here"), **attach)
        )
        self.run()
        return link

    def far(self, link: LinkEndpoint) -> Any:
        """The other end of a link."""
        found = [
            one[1] for one in self.there.told if one[0] == "attach" and one[1].name == link.name
        ]
        return found[-1]
