"""What a client gets: answers, and publications out of its mailbox.

This is the terminal that drivers know. Frames gather and leave in one write when the turn ends. So
many publications may be on their way that the client has not confirmed; a client that does not read
is *choked*, as one is for the rest of a turn that has brought it much, and its mailbox holds the
rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.contract import UNLIMITED_CREDIT, Channel, Delivery, Fragment, Message
from penstock.wire.padres.envelope import decode_envelope, encode_envelope
from penstock.wire.padres.frames import MAX_FRAME_BYTES, encode_message_frame

if TYPE_CHECKING:
    from penstock.protocols.padres.mailbox import PadresMailbox
    from penstock.protocols.padres.terminal import PadresTerminal

#: Output that may gather, or wait in the socket's buffer, before the mailbox is told to hold it.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
#: The most a frame has beside its envelope.
_FRAME_OVERHEAD: Final = 16
#: Publications on their way to a client that it has not confirmed.
MAX_UNCONFIRMED: Final = 1000


class PadresWriter:
    __slots__ = (
        "_bytes",
        "_mailbox",
        "_metrics",
        "_out",
        "_receipt",
        "_terminal",
        "_unconfirmed",
        "_write_batch",
        "channel",
        "largest",
        "paused",
        "write_blocked",
    )

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal
        self._write_batch = terminal.host.kernel.write_batch
        self._metrics = terminal.host.kernel.metrics
        self._mailbox: PadresMailbox | None = None
        self._out: list[bytes] = []
        self._bytes = 0  # of publications that have gathered
        self._receipt = 0
        self._unconfirmed: dict[int, Delivery] = {}
        self.channel: Channel | None = None  #: the mailbox's, while it is read from
        self.write_blocked = False  #: the mailbox sends nothing until the socket has caught up
        self.paused = False  #: the client does not read what it is sent
        self.largest = (
            MAX_FRAME_BYTES  #: frame the client takes; a payload that is too much is left out
        )

    # The socket.

    def send(self, frame: bytes) -> None:
        if not self._out:
            self._write_batch.to_flush.append(self)
        self._out.append(frame)

    def flush(self) -> None:
        out, self._out = self._out, []
        self._bytes = 0
        transport = self._terminal.transport
        if out and not transport.is_closing():
            data = b"".join(out)
            self._metrics.bytes_out += len(data)
            self._terminal.heartbeats.said = True
            transport.write(data)
        if self.write_blocked and not self.paused:
            self._write_batch.call_soon(self._unblock_writes)

    def pause(self) -> None:
        self.paused = True
        self._block_writes()

    def resume(self) -> None:
        self.paused = False
        self._unblock_writes()

    def _block_writes(self) -> None:
        self.write_blocked = True
        if self.channel is not None:
            self.channel.driver.channel_request(self.channel, 0)

    def _unblock_writes(self) -> None:
        if self.write_blocked and not self.paused:
            self.write_blocked = False
            self._request()

    # The mailbox.

    def open(self, mailbox: PadresMailbox) -> None:
        self._mailbox = mailbox
        queue = mailbox.queue
        self.channel = Channel(self, queue)
        queue.channel_open(self.channel, {"exclusive": True})
        self._request()

    def close(self) -> None:
        """What was not confirmed goes back to where it was."""
        self._mailbox = None
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
            unanswered, self._unconfirmed = self._unconfirmed, {}
            for delivery in reversed(unanswered.values()):
                channel.driver.channel_failure(channel, delivery, requeue=True)

    def answered(self, receipt: int) -> None:
        """The client is done with that publication and all before it."""
        full = len(self._unconfirmed) >= MAX_UNCONFIRMED
        while self._unconfirmed:
            first = next(iter(self._unconfirmed))
            if first > receipt:
                break
            delivery = self._unconfirmed.pop(first)
            self._metrics.acknowledged += 1
            if self.channel is not None:
                self.channel.driver.channel_confirm(self.channel, delivery)
        if full:
            self._request()

    def _request(self) -> None:
        if (
            self.channel is not None
            and not self.write_blocked
            and len(self._unconfirmed) < MAX_UNCONFIRMED
        ):
            self.channel.driver.channel_request(self.channel, UNLIMITED_CREDIT)

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        receipt = self._receipt = self._receipt + 1
        self._unconfirmed[receipt] = delivery
        if len(self._unconfirmed) >= MAX_UNCONFIRMED:
            channel.driver.channel_request(channel, 0)
        self._metrics.delivered += 1
        body = cast(bytes, fragment.body)
        if len(body) + _FRAME_OVERHEAD > self.largest:
            body = encode_envelope(replace(decode_envelope(body, 0)[0], payload=b""))
        self.send(encode_message_frame(body, receipt))
        self._bytes += len(body)
        if self._bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """Nothing is posted here: the router answers at once."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """An operator has deleted the mailbox: there shall be another."""
        self.channel = None
        self._unconfirmed.clear()
        self._write_batch.call_soon(self._open_again)

    def _open_again(self) -> None:
        if self._mailbox is not None and self.channel is None:
            self.open(self._mailbox)
