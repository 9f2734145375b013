"""A delivery that comes in several transfers.

Small ones are gathered and published whole. What outgrows the threshold goes on as it comes, in
buckets: the exchange spools it, and of it nothing stays here but the sections before its body,
which have to fit the threshold themselves. How long a message is, its last transfer tells: its
header is completed then, before the last fragment is posted.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from penstock.broker.buckets import Bucket
from penstock.broker.contract import MANDATORY, Fragment, Message
from penstock.core.errors import PenstockError
from penstock.terminals.amqp10 import conversion
from penstock.terminals.amqp10.pouring import DataSections, KeptSections
from penstock.wire.amqp10.conditions import MESSAGE_TOO_LARGE, LinkFault
from penstock.wire.amqp10.sections import DATA, Head, read_head

if TYPE_CHECKING:
    from penstock.terminals.amqp10.inlet import Inlet, Producer
    from penstock.wire.amqp10.links import Incoming


class Arrival:
    __slots__ = (
        "_body",
        "_bucket",
        "_delivery",
        "_head",
        "_inlet",
        "_message",
        "_parts",
        "_poured",
        "_producer",
        "_size",
        "_wasted",
    )

    def __init__(self, inlet: Inlet, delivery: Incoming) -> None:
        self._inlet = inlet
        self._delivery = delivery
        self._parts: list[bytes] = []
        self._size = 0
        self._head: Head | None = None  #: of a large one, once it has begun
        self._message: Message | None = None
        self._body: DataSections | KeptSections | None = None
        self._bucket: Bucket | None = None
        self._poured = 0
        self._wasted = False  #: it was refused: what still comes of it is not looked at
        self._producer: Producer | None = None

    def add(self, payload: bytes, more: bool) -> None:
        terminal = self._inlet.terminal
        self._size += len(payload)
        limit = terminal.host.kernel.settings.max_message_bytes
        if limit and self._size > limit:
            raise LinkFault(
                MESSAGE_TOO_LARGE, f"a message of more than {limit} bytes, the most there may be"
            )
        if self._wasted:
            return
        if self._body is None:
            self._parts.append(payload)
            if self._size <= terminal.spool_threshold:
                if not more:
                    self._inlet.publish(self._delivery, b"".join(self._parts))
                return
        try:
            if self._body is None:
                self._open(more)
            else:
                self._pour(payload, more)
        except PenstockError as error:
            self._refuse(error)

    def _open(self, more: bool) -> None:
        """It is a large one: as soon as its head is whole, it goes on as it comes."""
        inlet = self._inlet
        data = b"".join(self._parts)
        head = read_head(data, whole=not more)
        if head is None or head.body_at > inlet.terminal.spool_threshold:
            if self._size > 2 * inlet.terminal.spool_threshold or head is not None:
                raise LinkFault(MESSAGE_TOO_LARGE, "too much is said of a message before its body")
            self._parts = [data]
            return
        self._parts.clear()
        found = conversion.incoming_head(head, 0, time())
        if not self._delivery.settled:
            found.flags |= MANDATORY  # as `Inlet.post` does for what has a receipt
        message = Message(inlet.route_of(found), found.header, b"", found.flags, more=True)
        self._producer = inlet.post(message, 0)
        self._head = head
        self._message = message
        self._body = DataSections() if head.kind == DATA else KeptSections()
        inlet.terminal.intake.expect_bulk(True)
        self._pour(memoryview(data)[head.body_at :], more)

    def _refuse(self, error: PenstockError) -> None:
        """It is no message, or leads nowhere; the rest of it has to come all the same."""
        self._wasted = True
        self._parts.clear()
        self.abandon()
        receipt = 0
        if not self._delivery.settled:
            receipt = self._delivery.id + 1
            self._inlet.unsettled += 1
        self._inlet.refuse(receipt, error)

    def _pour(self, payload: bytes | memoryview, more: bool) -> None:
        assert self._body is not None
        for content in self._body.feed(memoryview(payload)):
            self._fill(content)
        if not more:
            self._finish()

    def _fill(self, content: memoryview) -> None:
        while content:
            if self._bucket is not None and self._bucket.full:
                self._post(self._bucket, more=True)
                self._bucket = None
            if self._bucket is None:
                self._bucket = self._inlet.terminal.intake.account.take()
            taken = self._bucket.fill(content)
            self._poured += taken
            content = content[taken:]

    def _finish(self) -> None:
        inlet, delivery = self._inlet, self._delivery
        head, message, body = self._head, self._message, self._body
        assert head is not None
        assert message is not None
        assert body is not None
        footer = body.finish()
        found = conversion.incoming_head(head, self._poured, time(), footer=footer)
        message.header = found.header
        bucket, self._bucket = self._bucket, None
        if bucket is None:
            bucket = inlet.terminal.intake.account.take()
        receipt = 0
        if not delivery.settled:
            receipt = delivery.id + 1
            inlet.unsettled += 1
        inlet.terminal.published += 1
        # What follows may not overtake it on its way to the disk. The connection is read again
        # when nothing of it is in buckets, so those of other links have to go there as well.
        inlet.terminal.hand_over()
        inlet.terminal.intake.hold()
        inlet.terminal.intake.expect_bulk(False)
        self._post(bucket, more=False, receipt=receipt)
        self._producer = None

    def _post(self, bucket: Bucket, more: bool, receipt: int = 0) -> None:
        assert self._producer is not None
        self._producer.post(self._producer, Fragment(bucket, bucket.content, more), receipt)

    def hand_over(self) -> None:
        """Let go of what is here, though it does not fill a bucket."""
        if self._bucket is not None:
            bucket, self._bucket = self._bucket, None
            self._post(bucket, more=True)

    def abandon(self) -> None:
        """The rest will not come, and what has come is to be forgotten."""
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
        if self._producer is not None:
            self._inlet.terminal.intake.expect_bulk(False)
            self._inlet.end_conversation(self._producer)
            self._producer = None
