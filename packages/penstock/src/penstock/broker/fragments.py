"""Large messages: sending a spool fragment by fragment, and assembling fragments into a spool.

A thread reads the disk one bucket at a time. A bucket is forwarded in smaller fragments, so that no
single write delays other clients. While a message is assembled, later posts of the same sender
wait, so that nothing overtakes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.kernel import Kernel
from penstock.broker.spool import Spool, Spools

FRAGMENT_BYTES: Final = 24 * 1024


class FragmentSender:
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
        self._offset = 0  # forwarded bytes
        self._bucket: Bucket | None = None
        self._position = 0  # in the bucket
        self._reading = False
        self._cancelled = False
        self._spool.fileno()  # open now: the file of a settled message is unlinked at once

    def open(self) -> None:
        message = self.delivery.message
        opening = Message(message.route, message.header, b"", message.flags, more=True)
        self._channel.terminal.channel_forward(self._channel, opening, self.delivery)

    def draw(self) -> None:
        """The terminal accepts the next fragment."""
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
                lost = error or OSError(f"{self._spool.path} is truncated")
                self._channel.terminal.channel_failure(self._channel, 0, lost)
        else:
            self._bucket = bucket
            self._position = 0
            self._forward(bucket)
        self._kernel.write_batch.flush()

    def _forward(self, bucket: Bucket) -> None:
        body = bucket.content[self._position : self._position + FRAGMENT_BYTES]
        self._position += len(body)
        self._offset += len(body)
        if self._position == bucket.filled:
            self._bucket = None  # the fragment now holds it
        else:
            bucket.retain()
        more = self._offset < self._spool.size
        terminal = self._channel.terminal
        terminal.channel_forward(self._channel, Fragment(bucket, body, more), self.delivery)
        if not more and not self._cancelled:  # the last fragment may have ended the channel
            self._finished()

    def cancel(self) -> None:
        """Forward nothing more. A running read ends first: it fills a bucket."""
        self._cancelled = True
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None


#: Called with the complete message and its receipt.
Post = Callable[[Message, int], None]


class FragmentAssembler:
    __slots__ = ("_behind", "_ended", "_message", "_post", "_receipt", "_reception")

    def __init__(self, opening: Message, spools: Spools, post: Post) -> None:
        self._message = opening
        self._post = post
        self._receipt = 0
        self._ended = False
        self._behind: list[tuple[Message | Fragment, int]] = []
        self._reception = spools.receive(self._complete)

    def add(self, fragment: Message | Fragment, receipt: int) -> None:
        if self._ended or isinstance(fragment, Message):
            self._behind.append((fragment, receipt))
            return
        self._receipt = receipt
        self._ended = not fragment.more
        self._reception.append(fragment.bucket, last=self._ended)

    def _complete(self, spool: Spool) -> None:
        message = self._message
        message.more = False
        message.spool = spool
        self._post(message, self._receipt)

    def take_behind(self) -> list[tuple[Message | Fragment, int]]:
        """Posts that waited behind the message; the caller takes them over."""
        behind, self._behind = self._behind, []
        return behind

    def cancel(self) -> None:
        self._reception.cancel()
        for fragment, _ in self.take_behind():
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
