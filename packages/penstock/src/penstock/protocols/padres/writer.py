"""The writer of a PADRES connection: sends responses, and publications from the client's mailbox.

At most `MAX_UNCONFIRMED` publications are sent that the client has not confirmed. The mailbox keeps
the others, and those for a client that does not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.contract import UNLIMITED_CREDIT, Channel, Delivery, Fragment, Message
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES, SocketWriter
from penstock.wire.padres.envelope import decode_envelope, encode_envelope
from penstock.wire.padres.frames import MAX_FRAME_BYTES, encode_message_frame

if TYPE_CHECKING:
    from penstock.protocols.padres.mailbox import PadresMailbox
    from penstock.protocols.padres.terminal import PadresTerminal

#: The size of a frame without its envelope, at most.
_FRAME_OVERHEAD: Final = 16
#: Publications that were sent to a client and not confirmed.
MAX_UNCONFIRMED: Final = 1000


class PadresWriter:
    __slots__ = (
        "_mailbox",
        "_metrics",
        "_receipt",
        "_terminal",
        "_unconfirmed",
        "_write_batch",
        "channel",
        "largest",
        "output",
    )

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal
        self._write_batch = terminal.host.kernel.write_batch
        self._metrics = terminal.host.kernel.metrics
        self._mailbox: PadresMailbox | None = None
        self._receipt = 0
        self._unconfirmed: dict[int, Delivery] = {}
        self.output = SocketWriter(terminal, self)
        self.channel: Channel | None = None  #: to the mailbox
        self.largest = MAX_FRAME_BYTES  #: frame that the client accepts

    def flush(self) -> None:
        self.output.flush()

    # The mailbox.

    def open(self, mailbox: PadresMailbox) -> None:
        self._mailbox = mailbox
        queue = mailbox.queue
        self.channel = Channel(self, queue)
        queue.channel_open(self.channel, {"exclusive": True})
        self.request_all()

    def close(self) -> None:
        """Requeue what was not confirmed."""
        self._mailbox = None
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
            unconfirmed, self._unconfirmed = self._unconfirmed, {}
            for delivery in reversed(unconfirmed.values()):
                channel.driver.channel_failure(channel, delivery, requeue=True)

    def acknowledge(self, receipt: int) -> None:
        """The client confirms this publication and all before it."""
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
            self.request_all()

    def request_all(self) -> None:
        if self.channel is not None:
            blocked = self.output.write_blocked or len(self._unconfirmed) >= MAX_UNCONFIRMED
            credit = 0 if blocked else UNLIMITED_CREDIT
            self.channel.driver.channel_request(self.channel, credit)

    # The contract.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        receipt = self._receipt = self._receipt + 1
        self._unconfirmed[receipt] = delivery
        if len(self._unconfirmed) >= MAX_UNCONFIRMED:
            channel.driver.channel_request(channel, 0)
        body = cast(bytes, fragment.body)
        if len(body) + _FRAME_OVERHEAD > self.largest:
            body = encode_envelope(replace(decode_envelope(body, 0)[0], payload=b""))
        output = self.output
        output.send(encode_message_frame(body, receipt))
        output.delivered += 1
        output.bytes += len(body)
        if output.bytes > WRITE_HIGH_WATER_BYTES and not output.write_blocked:
            output.block()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """Publications go to the router, not to a channel."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The mailbox was deleted by an operator: declare it again."""
        self.channel = None
        self._unconfirmed.clear()
        self._write_batch.call_soon(self._reopen)

    def _reopen(self) -> None:
        if self._mailbox is not None and self.channel is None:
            self.open(self._mailbox)
