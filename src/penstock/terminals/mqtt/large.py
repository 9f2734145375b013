"""A large publication on its way in: it goes on as it comes, and nothing of it stays here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Fragment, Message

if TYPE_CHECKING:
    from penstock.terminals.mqtt.terminal import MqttTerminal


class LargePublish:
    __slots__ = ("_begun", "_bucket", "_producer", "_receipt", "_terminal")

    def __init__(self, terminal: MqttTerminal, producer: Channel) -> None:
        self._terminal = terminal
        self._producer = producer
        self._receipt = 0
        self._begun = False  #: otherwise nobody wants it, and it is let pass
        self._bucket: Bucket | None = None

    def begin(self, message: Message, receipt: int) -> None:
        self._begun = True
        self._receipt = receipt
        self._terminal.intake.expect_bulk(True)
        self._producer.driver.channel_post(self._producer, message, 0)

    def pour(self, data: memoryview, more: bool) -> None:
        if not self._begun:
            return
        intake = self._terminal.intake
        while data:
            if self._bucket is None:
                self._bucket = intake.account.take()
            data = data[self._bucket.fill(data) :]
            last = not more and not data
            if last or self._bucket.full:
                bucket, self._bucket = self._bucket, None
                if last:
                    # What follows may not overtake it on its way to the disk.
                    intake.hold()
                    intake.expect_bulk(False)
                fragment = Fragment(bucket, bucket.content, more=not last)
                receipt = self._receipt if last else 0
                self._producer.driver.channel_post(self._producer, fragment, receipt)

    def abandon(self) -> None:
        """The connection has ended in the middle of it."""
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
