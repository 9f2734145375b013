"""A link: one connection to a neighbour, whoever of the two made it.

Both say who they are, then each asks the other to be its neighbour (`OVERLAY-CONNECT_REQ`) and
agrees to it (`OVERLAY-CONNECT_ACK`). Who is agreed with tells all it has advertised and subscribed
to for the other, and at the end that this was all (`OVERLAY-STATE`). From then on publications come
out of the neighbour's queue, each with a receipt, and leave it when the neighbour confirms.

A receipt of a publication that is on disk is its place in the queue's log, doubled: the same each
time it is sent, so that the neighbour knows it again. Others have odd ones.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.contract import UNLIMITED, Channel, Delivery, Fragment, Message
from penstock.broker.destinations import REFUSED
from penstock.core.errors import FrameError, PenstockError
from penstock.core.logs import get_logger
from penstock.overlay.agreement import Agreement
from penstock.wire.padres.codec import encode, note
from penstock.wire.padres.conditions import code_of
from penstock.wire.padres.envelope import Envelope
from penstock.wire.padres.envelopes import encode_envelope
from penstock.wire.padres.frames import PREFACE, Close, Confirm, Failed, Note, Open
from penstock.wire.padres.reader import Reader

if TYPE_CHECKING:
    from penstock.overlay.line import QueuedLine
    from penstock.overlay.links import Links
    from penstock.overlay.marks import Mark
    from penstock.overlay.neighbours import Neighbour

#: Publications that may be on their way to a neighbour and not confirmed.
WINDOW: Final = 4096
#: What may gather in one turn; the rest stays where it lies until that is out.
GATHERED_BYTES: Final = 1024 * 1024

_log = get_logger("penstock.overlay")


class Link(asyncio.Protocol):
    def __init__(
        self,
        links: Links,
        wanted: str,
        opened: Open | None = None,
        check_user: Callable[[], None] | None = None,
    ) -> None:
        """To a broker that is to be `wanted`. One that connected to us has `opened` already, as a
        user who is checked again (`check_user`) for as long as the link is there."""
        self.links = links
        self.dialled = opened is None
        self.wanted = wanted
        self.peer = opened
        self.neighbour: Neighbour | None = None
        self.ended: asyncio.Future[PenstockError | None] = links.loop.create_future()
        self._check_user = check_user
        self._turn = links.kernel.turn
        largest = links.largest
        self._reader = Reader(largest) if opened is None else Reader.after_open(largest)
        self._agreement = Agreement(self)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._channel: Channel | None = None
        self._unanswered: dict[int, Delivery] = {}
        self._deferred: list[int] = []
        self._odd = 1
        self._choked = False  # the neighbour does not read
        self._bytes = 0  # of publications that have gathered
        self._mark: Mark
        self.reason: PenstockError | None = None
        self._over = False

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._send(PREFACE + encode(self.links.introduction(self.wanted, self.dialled)))
        if self.peer is not None:
            self._opened(self.peer)
        self._turn.end()

    def data_received(self, data: bytes) -> None:
        self.links.kernel.metrics.bytes_in += len(data)
        try:
            if self._check_user is not None:
                self._check_user()
            for frame in self._reader.frames(data):
                if isinstance(frame, Note):
                    self._take(frame)
                elif isinstance(frame, Confirm):
                    self._answered(frame.receipt)
                elif isinstance(frame, Open):
                    self._opened(frame)
                elif isinstance(frame, Failed):
                    _log.error("a neighbour refused", neighbour=self.wanted, reason=frame.text)
                    self._answered(frame.receipt)
                elif isinstance(frame, Close):
                    self.end(self.links.closed_by(frame), say=False)
                if self._over:
                    break
        except PenstockError as error:
            self.end(error)
        except Exception as error:
            _log.error("link failed", neighbour=self.wanted, exc_info=error)
            self.end(PenstockError("internal error"))
        self._turn.rest()

    def check_user(self) -> None:
        """End the link if the user it came as may no longer have one."""
        try:
            if self._check_user is not None:
                self._check_user()
        except PenstockError as error:
            self.end(error)

    def pause_writing(self) -> None:
        self._choked = True
        self._request()

    def resume_writing(self) -> None:
        self._choked = False
        self._request()
        self._turn.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if not self.ended.done():
            self.ended.set_result(self.reason)
        self._turn.end()

    def flush(self) -> None:
        out, self._out = self._out, []
        if self._bytes >= GATHERED_BYTES:
            self._turn.soon(self._request)
        self._bytes = 0
        if out and self._transport is not None and not self._transport.is_closing():
            data = b"".join(out)
            self.links.kernel.metrics.bytes_out += len(data)
            self._transport.write(data)

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._turn.touched.append(self)
        self._out.append(data)

    # What is said.

    def _opened(self, opened: Open) -> None:
        self.peer = opened
        self.links.check(self, opened)
        self._mark = self.links.marks.of(opened.id, opened.store)
        self._agreement.ask(opened.id)

    def note(self, envelope: Envelope) -> None:
        """What needs no receipt."""
        self._send(note(encode_envelope(envelope)))

    def _take(self, frame: Note) -> None:
        if self._agreement.take(frame.envelope):
            return
        neighbour, receipt = self.neighbour, frame.receipt
        if neighbour is None:
            raise FrameError("a message before both agreed to be neighbours")
        known = receipt and not receipt & 1 and receipt <= self._mark.number
        outcome = 0 if known else self.links.receive(neighbour, frame.envelope)
        if not receipt:
            return
        if outcome & REFUSED and self.links.router.exits.stopped:
            self._deferred.append(receipt)  # it is safe nowhere before the broker is resumed
            return
        if not receipt & 1 and not known and not self._deferred:
            self._mark.move(receipt)
        self._confirm_safe(receipt)

    def stopped_or_resumed(self) -> None:
        self._request()
        if not self.links.router.exits.stopped:
            deferred, self._deferred = self._deferred, []
            for receipt in deferred:
                self._confirm_safe(receipt)

    def _confirm_safe(self, receipt: int) -> None:
        if receipt & 1:
            self._confirm(receipt)
        else:
            self.links.kernel.committer.after(lambda: self._confirm(receipt))

    def _confirm(self, receipt: int) -> None:
        if not self._over:
            self._send(encode(Confirm(receipt)))

    # What the neighbour gets.

    def agreed(self, neighbour: Neighbour, line: QueuedLine) -> None:
        """Both are neighbours: what waits may go."""
        self.neighbour = neighbour
        self._channel = Channel(self, line.queue)
        line.queue.channel_open(self._channel, {"exclusive": True})
        self._request()

    def _request(self) -> None:
        if self._channel is not None:
            stopped = self.links.router.exits.stopped
            room = len(self._unanswered) < WINDOW and self._bytes < GATHERED_BYTES
            free = room and not (self._choked or stopped)
            self._channel.driver.channel_request(self._channel, UNLIMITED if free else 0)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        if delivery.offset >= 0:
            receipt = 2 * (delivery.offset + 1)
        else:
            receipt = self._odd
            self._odd += 2
        self._unanswered[receipt] = delivery
        body = cast(bytes, fragment.body)
        self._bytes += len(body)
        if len(self._unanswered) >= WINDOW or self._bytes >= GATHERED_BYTES:
            channel.driver.channel_request(channel, 0)
        self._send(note(body, receipt))

    def _answered(self, receipt: int) -> None:
        delivery = self._unanswered.pop(receipt, None)
        if delivery is not None and self._channel is not None:
            self._channel.driver.channel_confirm(self._channel, delivery)
            if len(self._unanswered) == WINDOW - 1:
                self._request()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """Nothing is posted here."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """Somebody has deleted the queue: the next link makes a new one."""
        self._channel = None
        self._unanswered.clear()
        self.end(PenstockError(str(error)))

    # The end.

    def end(self, reason: PenstockError | None, say: bool = True) -> None:
        """Close, saying why."""
        if self._over:
            return
        self.reason = reason
        if say:
            code = 0 if reason is None else code_of(reason)
            self._send(encode(Close(code, "" if reason is None else str(reason))))
        self._leave()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        if self._over:
            return
        self._over = True
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.driver.channel_close(channel)  # first: what is given back is not for us
            for delivery in reversed(self._unanswered.values()):
                channel.driver.channel_failure(channel, delivery, requeue=True)
            self._unanswered.clear()
        self.links.left(self)


def _keep_alive(connection: socket.socket | None) -> None:
    """A machine that is switched off says nothing: the system finds out, within a minute."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
