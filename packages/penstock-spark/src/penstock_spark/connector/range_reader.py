"""Reads a range of a stream as record batches, exactly once, over connections that may fail.

This is the one place where reading is checked, for every broker: messages are in order, none is
missing, and the last one arrives. A failed connection is replaced, at the next offset, as long as
something arrives within the retry time.

Lost messages are never skipped silently. With `failOnDataLoss` (the default) the query fails with
an error that says what happened and what to do; otherwise the loss is logged with the total.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy, retry
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.errors import DataLost
from penstock_spark.streams.backend import StreamBackend, StreamEnded, StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint

_log = get_logger(__name__)

RETRY_SECONDS: Final = 0.5
#: Spark pays for every record batch that it takes: smaller ones are joined, …
_BATCH_ROWS: Final = 65_536
#: … unless they have this many bytes.
_BATCH_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Picklable; the same for all tasks of a query."""

    columns: MessageColumns
    fail_on_loss: bool
    retry_seconds: float

    def rows(self, endpoint: StreamEndpoint, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        built = self._built(endpoint, wanted)
        return built if self.columns.packed else _joined(built)

    def _built(self, endpoint: StreamEndpoint, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        loss = DataLossPolicy(self.fail_on_loss)
        name, position = wanted.stream, wanted.start
        deadline = time.monotonic() + self.retry_seconds
        while position < wanted.stop:
            left = StreamRange(name, position, wanted.stop)
            try:
                with closing(endpoint.open()) as streams:
                    for batch in streams.read(left):
                        _check_gaps(batch, left, position, streams, loss)
                        position = batch.column(0)[-1].as_py() + 1
                        deadline = time.monotonic() + self.retry_seconds
                        yield self.columns.build(batch, name)
                    if position < wanted.stop and streams.is_data_loss(name, position, wanted.stop):
                        loss.gap(name, position, wanted.stop)
                    return
            except StreamEnded:
                loss.short(name, position, wanted.stop)
                return
            except NotFound:
                loss.missing(name, position)
                return
            except (OSError, EOFError, PenstockError) as error:
                if not is_transient_amqp_error(error) or time.monotonic() > deadline:
                    raise
                _log.warning("range read failed", range=str(left), reason=str(error))
                time.sleep(RETRY_SECONDS)
                policy = RetryPolicy.fixed(RETRY_SECONDS, deadline - time.monotonic())
                endpoint = retry(endpoint.rediscover, policy, is_transient_amqp_error)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _check_gaps(
    batch: pa.RecordBatch,
    wanted: StreamRange,
    expected: int,
    streams: StreamBackend,
    loss: DataLossPolicy,
) -> None:
    """Check that offsets are consecutive, or that the broker leaves such gaps."""
    offsets = batch.column(0).to_numpy()
    for row in np.flatnonzero(np.diff(offsets, prepend=expected - 1) != 1).tolist():
        before = int(offsets[row - 1]) + 1 if row else expected
        found = int(offsets[row])
        if streams.is_data_loss(wanted.stream, before, found):
            loss.gap(wanted.stream, before, found)


_ADVICE = (
    "To continue with the remaining messages, set failOnDataLoss=false; to keep messages longer, "
    "raise the stream's x-max-age or x-max-length-bytes"
)


@dataclass(slots=True)
class DataLossPolicy:
    fail: bool
    missed: int = 0  #: messages

    def gap(self, stream: str, expected: int, found: int) -> None:
        """The next message is at `found` instead of `expected`."""
        count = found - expected
        self._lost(
            f"stream {stream!r}: the {count} messages from offset {expected} to {found - 1} do "
            f"not exist any more: retention removed them before they were read. {_ADVICE}",
            stream,
            count,
        )

    def ended(self, stream: str, expected: int, end: int) -> None:
        """The stream ends before an offset that was read."""
        self._lost(
            f"stream {stream!r} ends at offset {end} but was read up to {expected}: it was "
            "deleted and declared again, or the broker lost data. To read the new stream from its "
            "beginning, set failOnDataLoss=false, or use a new checkpoint",
            stream,
            max(expected - end, 0),
        )

    def short(self, stream: str, position: int, stop: int) -> None:
        """The stream ends before the planned end of the range."""
        self._lost(
            f"stream {stream!r} has no messages from offset {position} to {stop - 1}, which it had "
            "when the batch was planned: retention removed them, or the stream was deleted and "
            f"declared again. {_ADVICE}",
            stream,
            stop - position,
        )

    def missing(self, stream: str, position: int) -> None:
        self._lost(
            f"stream {stream!r} does not exist any more; it was read up to offset {position}. If "
            "it was deleted on purpose, set failOnDataLoss=false or remove it from the streams",
            stream,
            0,
        )

    def _lost(self, words: str, stream: str, count: int) -> None:
        if self.fail:
            raise DataLost(words)
        self.missed += count
        _log.warning("messages lost", stream=stream, count=count, total=self.missed, reason=words)
