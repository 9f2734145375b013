"""Publisher confirms: what is safe, told to the publisher in as few words as possible.

Receipts are the delivery tags of `basic.ack` and count from one. They come as destinations see fit
and gather until the turn ends; those that follow one another are then told by one acknowledgement.
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
        self._channel = channel
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
        if channel.closing:
            return
        upto = self._upto
        ahead = self._ahead
        single: list[int] = []
        for receipt in receipts:
            if receipt == upto + 1:
                upto = receipt
            else:
                single.append(receipt)
        ahead.update(single)
        while ahead and upto + 1 in ahead:
            upto += 1
            ahead.discard(upto)
        if upto > self._upto:
            channel.send(ack_frame(channel.number, upto, upto - self._upto > 1))
            self._upto = upto
        for receipt in single:
            if receipt > upto:
                channel.send(ack_frame(channel.number, receipt, False))
        channel.connection.host.kernel.metrics.confirmed += len(receipts)

    def refuse(self, receipt: int) -> None:
        """What was published with this receipt was not taken."""
        channel = self._channel
        if channel.closing:
            return
        self._ahead.add(receipt)
        nack = method_frame(
            channel.number, methods.BASIC_NACK, delivery_tag=receipt, multiple=False
        )
        channel.send(nack)
