"""The body of a large message on its way to an exchange, as fragments in pooled buckets.

Data is copied into a bucket as it arrives, and each full bucket is posted, so a message of any
size takes bounded memory here. After the last fragment the connection is not read until
everything is on disk: messages that follow must not overtake it.
"""

from __future__ import annotations

from typing import Protocol

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Fragment
from penstock.broker.flow_control import ReadFlowControl


class BucketTerminal(Protocol):
    flow_control: ReadFlowControl

    def post_partial_buckets(self) -> None:
        """Post all partial buckets of the connection, so that they can reach the disk."""


class FragmentPoster:
    __slots__ = ("_bucket", "_channel", "_terminal", "size")

    def __init__(self, terminal: BucketTerminal, channel: Channel) -> None:
        self._terminal = terminal
        self._channel = channel
        self._bucket: Bucket | None = None
        self.size = 0  #: bytes added so far
        terminal.flow_control.expect_bulk(True)

    def add(self, data: memoryview) -> None:
        self.size += len(data)
        while data:
            if self._bucket is None:
                self._bucket = self._terminal.flow_control.account.take()
            data = data[self._bucket.fill(data) :]
            if self._bucket.full:
                self.post_partial()

    def post_partial(self) -> None:
        """Post the current bucket even if it is not full."""
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            self._post(bucket, more=True)

    def finish(self, receipt: int) -> None:
        flow_control = self._terminal.flow_control
        bucket, self._bucket = self._bucket, None
        if bucket is None:
            bucket = flow_control.account.take()
        # The connection is read again when none of its buckets is in use: post the others, too.
        self._terminal.post_partial_buckets()
        flow_control.hold()
        flow_control.expect_bulk(False)
        self._post(bucket, more=False, receipt=receipt)

    def _post(self, bucket: Bucket, *, more: bool, receipt: int = 0) -> None:
        fragment = Fragment(bucket, bucket.content, more)
        self._channel.driver.channel_post(self._channel, fragment, receipt)

    def abandon(self) -> None:
        """The rest of the message will not arrive."""
        self._terminal.flow_control.expect_bulk(False)
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
