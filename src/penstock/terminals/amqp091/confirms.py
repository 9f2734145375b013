"""Publisher confirms: what is safe, told to the publisher in as few words as possible.

Receipts are the delivery tags of `basic.ack` and count from one. They come as destinations see fit
and gather until the turn ends; those that follow one another are then told by one acknowledgement.
Each tag is answered once, by `basic.ack` or by `basic.nack`: an acknowledgement ends at a tag that
is confirmed by it, and with `multiple` it passes only over tags that have had their answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.frames import ack_frame
from penstock.terminals.amqp091.methods import method_frame

if TYPE_CHECKING:
    from penstock.terminals.amqp091.channel import AmqpChannel


class Confirms:
    __slots__ = ("_ahead", "_channel", "_upto", "receipts")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel: AmqpChannel | None = channel  #: None once it has closed
        self._upto = 0  #: all receipts up to this one have been answered
        self._ahead: set[int] = set()  #: and these beyond it
        self.receipts: list[int] = []  #: safe, and not told yet

    def outstanding(self, published: int) -> int:
        """How many of the receipts given out so far wait for an answer."""
        return max(0, published - self._upto - len(self._ahead))

    def write(self) -> None:
        """Tell what has gathered; nobody is told on a channel that has closed."""
        receipts, self.receipts = self.receipts, []
        channel = self._channel
        if channel is None:
            return
        before = upto = self._upto
        single: list[int] = []
        for receipt in receipts:
            if receipt == upto + 1:
                upto = receipt
            else:
                single.append(receipt)
        last = upto  # of those that are confirmed here and have no gap before them
        self._upto = upto
        if single or self._ahead:
            self._ahead.update(single)
            self._advance()
            last = max([upto, *(receipt for receipt in single if receipt <= self._upto)])
        if last > before:
            channel.send(ack_frame(channel.number, last, last - before > 1))
        for receipt in single:
            if receipt > last:
                channel.send(ack_frame(channel.number, receipt, False))
        channel.connection.host.kernel.metrics.confirmed += len(receipts)

    def refuse(self, receipt: int) -> None:
        """What was published with this receipt was not taken."""
        channel = self._channel
        if channel is None:
            return
        self._ahead.add(receipt)
        self._advance()
        nack = method_frame(
            channel.number, methods.BASIC_NACK, delivery_tag=receipt, multiple=False
        )
        channel.send(nack)

    def _advance(self) -> None:
        """Those beyond a gap that has closed are beyond it no longer."""
        ahead = self._ahead
        while ahead and self._upto + 1 in ahead:
            self._upto += 1
            ahead.discard(self._upto)

    def close(self) -> None:
        """The channel closes: tell what has gathered, and nothing after that."""
        if self.receipts:
            self.write()
        self._channel = None
