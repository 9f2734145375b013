"""A large message on its way out: a piece at a time, as the terminal draws them.

The disk is read a bucket at a time, away from the loop; a bucket is forwarded in smaller pieces,
so that no single write holds up what others have to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.kernel import Kernel
from penstock.broker.spool import Spool

#: The most that is forwarded at once.
PIECE_BYTES: Final = 24 * 1024


class Sending:
    __slots__ = (
        "_bucket",
        "_cancelled",
        "_channel",
        "_finished",
        "_kernel",
        "_offset",
        "_position",
        "_reading",
        "_spool",
        "delivery",
    )

    def __init__(
        self,
        kernel: Kernel,
        channel: Channel,
        delivery: Delivery,
        finished: Callable[[], None],
    ) -> None:
        message = delivery.message
        assert message.spool is not None
        self._kernel = kernel
        self._channel = channel
        self.delivery = delivery
        self._finished = finished
        self._spool: Spool = message.spool
        self._offset = 0  # in the body: what is forwarded
        self._bucket: Bucket | None = None
        self._position = 0  # in the bucket
        self._reading = False
        self._cancelled = False
        self._spool.fileno()  # open it now: a settled message's file loses its name at once

    def open(self) -> None:
        message = self.delivery.message
        opening = Message(message.route, message.header, b"", message.flags, more=True)
        self._channel.terminal.channel_forward(self._channel, opening, self.delivery)

    def draw(self) -> None:
        """The terminal has room for the next fragment."""
        if self._reading or self._cancelled or self._offset >= self._spool.size:
            return
        if self._bucket is not None:
            self._forward(self._bucket)
        else:
            self._reading = True
            self._kernel.spools.read(self._spool, self._offset, self._read)

    def _read(self, bucket: Bucket, error: OSError | None) -> None:
        self._reading = False
        if self._cancelled or error is not None or not bucket.filled:
            bucket.release()
            if not self._cancelled:
                lost = error or OSError(f"{self._spool.path} is shorter than it was")
                self._channel.terminal.channel_failure(self._channel, 0, lost)
        else:
            self._bucket = bucket
            self._position = 0
            self._forward(bucket)
        self._kernel.turn.end()

    def _forward(self, bucket: Bucket) -> None:
        body = bucket.content[self._position : self._position + PIECE_BYTES]
        self._position += len(body)
        self._offset += len(body)
        if self._position == bucket.filled:
            self._bucket = None  # the fragment takes our hold on it along
        else:
            bucket.retain()
        more = self._offset < self._spool.size
        terminal = self._channel.terminal
        terminal.channel_forward(self._channel, Fragment(bucket, body, more), self.delivery)
        if not more and not self._cancelled:  # the last fragment may have ended the channel
            self._finished()

    def cancel(self) -> None:
        """Forward nothing more. A read that is under way ends first: it fills a bucket."""
        self._cancelled = True
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
