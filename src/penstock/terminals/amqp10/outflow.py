"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). What is to be written gathers in the
connection's `out` and leaves in one write when the turn ends; so do confirmations, as runs of
deliveries. A socket that does not take what it is given is *choked*: credit is withdrawn from all
links until it has caught up. A large message leaves one fragment at a time, each asked for when
the one before has left, while other links go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.core.errors import NoRoute, NotFound
from penstock.terminals.amqp10.confirms import Confirms
from penstock.terminals.amqp10.errors import error_of
from penstock.terminals.amqp10.inlet import Producer
from penstock.terminals.amqp10.leaving import Leaving
from penstock.terminals.amqp10.outlet import Outlet
from penstock.wire.amqp10.conditions import DELETED
from penstock.wire.amqp10.states import RELEASED, Error, Rejected

if TYPE_CHECKING:
    from penstock.terminals.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.session import Session

#: Output that may gather for one socket before its receivers are asked to wait.
CHOKE_BYTES: Final = 256 * 1024


class Outflow:
    __slots__ = (
        "_buckets",
        "_confirms",
        "_delivered",
        "_first",
        "_loop",
        "_metrics",
        "_terminal",
        "_touched",
        "_turn",
        "acknowledged",
        "choked",
        "outlets",
        "paused",
        "thirsty",
    )

    def __init__(self, terminal: Amqp10Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._turn = kernel.turn
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.outlets: dict[Outlet, None] = {}
        self.thirsty: dict[Outlet, None] = {}  #: with new credit to ask for
        self.acknowledged = 0
        self.choked = False  #: nothing is sent until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._delivered = 0
        self._touched = False
        self._first = 0  #: which outlet is asked for first
        self._confirms = Confirms()
        self._buckets: list[Bucket] = []

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        outlet = cast(Outlet, channel)
        if type(fragment) is not Message or fragment.more:
            self._forward_large(outlet, fragment, delivery)
            return
        link = outlet.link
        outgoing = link.new(outlet.presettled, delivery)
        count = 0
        released = False
        if delivery is not None:
            released = delivery.released
            if delivery.count or released:
                count = delivery.count
                self._metrics.redelivered += 1
            if not outgoing.settled:
                outlet.open[outgoing] = None
            elif not channel.settled:
                channel.driver.channel_confirm(channel, delivery)
        link.send(outgoing, self._terminal.service.press.payload(fragment, count, released))
        self._delivered += 1
        if link.session.waits:
            self.withdraw(link.session)
        if self._terminal.connection.out_bytes > CHOKE_BYTES and not self.choked:
            self._choke()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        inlet = cast(Producer, channel).inlet
        if inlet.kept is not None:  # its client is away
            inlet.kept.confirm(receipt)
            return
        self._confirms.add(inlet.link.session, receipt - 1)
        self.touch()

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, Outlet):
            self._outlet_ended(channel, error)
            return
        producer = cast(Producer, channel)
        inlet = producer.inlet
        if isinstance(error, NoRoute):
            self._metrics.returned += 1
            inlet.settle(receipt, RELEASED)
        elif receipt:
            inlet.settle(receipt, Rejected(error_of(error)))
        elif inlet.forget_producer(producer):
            self._terminal.end_link(inlet.link, _ending(error))

    def _outlet_ended(self, outlet: Outlet, error: Exception) -> None:
        """Its queue is gone, or will not have it any longer."""
        if outlet.sending is not None:
            outlet.link.abort(outlet.sending.delivery)
            outlet.sending = None
        self._terminal.end_link(outlet.link, _ending(error))

    def payload(self, delivery: Delivery) -> bytes:
        press = self._terminal.service.press
        return press.payload(delivery.message, delivery.count, delivery.released)

    # Large messages.

    def _forward_large(
        self, outlet: Outlet, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        link = outlet.link
        if self._terminal.closing or not link.live:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
            return
        if isinstance(fragment, Message):
            self._begin_large(outlet, fragment, delivery)
            return
        leaving = outlet.sending
        assert leaving is not None, "fragments follow the message they belong to"
        self._buckets.append(fragment.bucket)
        leaving.send(link, fragment.body, fragment.more)
        if fragment.more:
            self._draw_soon(outlet)
            return
        outlet.sending = None
        outgoing = leaving.delivery
        if outgoing.settled and not outlet.settled and outgoing.context is not None:
            outlet.driver.channel_confirm(outlet, outgoing.context)
        self.thirsty[outlet] = None
        self._loop.call_soon(self._request_thirsty)

    def _begin_large(self, outlet: Outlet, opening: Message, delivery: Delivery | None) -> None:
        link = outlet.link
        outgoing = link.new(outlet.presettled, delivery)
        count, released = 0, False
        if delivery is not None:
            count, released = delivery.count, delivery.released
        if not outgoing.settled and delivery is not None:
            outlet.open[outgoing] = None
        outlet.sending = Leaving(outgoing)
        outlet.sending.begin(link, opening, count, released)
        self._delivered += 1
        self._draw_soon(outlet)

    def _draw_soon(self, outlet: Outlet) -> None:
        if not self.choked:
            self._loop.call_soon(self._draw, outlet)

    def _draw(self, outlet: Outlet) -> None:
        """Ask for the next fragment of a large message, if there is room for it."""
        if outlet.sending is not None and not self.choked and not self._terminal.closing:
            outlet.request()
            self._turn.end()

    # Writing.

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)

    def flush(self) -> None:
        if self._confirms.waiting:
            self._metrics.confirmed += self._confirms.write()
        self._touched = False
        connection = self._terminal.connection
        if connection.out:
            data = b"".join(connection.out)
            connection.out.clear()
            connection.out_bytes = 0
            self._metrics.bytes_out += len(data)
            self._metrics.delivered += self._delivered
            self._delivered = 0
            self._terminal.lifesigns.said = True
            self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if connection.finished:
            self._terminal.finished()
        elif self.choked and not self.paused:
            self._loop.call_soon(self._unchoke)

    def _release(self) -> None:
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()

    # Credit.

    def pause(self) -> None:
        self.paused = True
        self._choke()

    def resume(self) -> None:
        self.paused = False
        self._unchoke()

    def _choke(self) -> None:
        """The socket is behind: nothing more is sent until it has caught up."""
        self.choked = True
        self._request_all()

    def _unchoke(self) -> None:
        if self.choked and not self.paused and not self._terminal.closing:
            self.choked = False
            self._request_all()
            self._turn.end()

    def _request_all(self) -> None:
        """Ask for every outlet; whoever is asked for first may fill the socket: take turns."""
        outlets = list(self.outlets)
        if not self.choked:
            self._first = (self._first + 1) % max(1, len(outlets))
        for outlet in outlets[self._first :] + outlets[: self._first]:
            if outlet in self.outlets:
                outlet.request()

    def withdraw(self, session: Session) -> None:
        """A session's window is full, or has room again: ask for what is on it."""
        for outlet in list(self.outlets):
            if outlet.link.session is session:
                outlet.request()

    def request(self) -> None:
        """Ask for those that were given credit, or have sent a large message."""
        thirsty, self.thirsty = self.thirsty, {}
        self._metrics.acknowledged += self.acknowledged
        self.acknowledged = 0
        for outlet in thirsty:
            if outlet in self.outlets:
                outlet.request()

    def _request_thirsty(self) -> None:
        if self.thirsty and not self._terminal.closing:
            self.request()
            self._turn.end()

    def drain_soon(self, outlet: Outlet) -> None:
        self._loop.call_soon(self._drain, outlet, outlet.link.delivery_count)

    def _drain(self, outlet: Outlet, seen: int) -> None:
        if not self._terminal.closing:
            outlet.drain(seen)
            self._turn.end()

    # The end.

    def leave(self, outlet: Outlet) -> None:
        """A link has ended."""
        self.outlets.pop(outlet, None)
        self.thirsty.pop(outlet, None)

    def forget(self) -> None:
        """All links have ended: nobody is owed what they had under way."""
        self.outlets.clear()
        self.thirsty.clear()
        self._confirms.waiting.clear()
        self._release()


def _ending(error: Exception) -> Error:
    """Why a link ends: what is not found any more was deleted."""
    return Error(DELETED, str(error)) if isinstance(error, NotFound) else error_of(error)
