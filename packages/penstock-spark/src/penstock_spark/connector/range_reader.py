"""A range of a stream as Spark's record batches, whole and once, over connections that may break.

The one place where reading is checked, for every broker: messages come in order, none is missing,
and the last one wanted does come. A connection that breaks is made again at the next offset, for as
long as something comes in `patience` seconds; what has been handed on is not handed on again.
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
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.errors import DataLost
from penstock_spark.streams.backend import StreamBackend, StreamEnded, StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint

_log = get_logger(__name__)

RETRY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class RangeReader:
    """How ranges are read: picklable, and the same for all tasks of a query."""

    columns: MessageColumns
    fail_on_loss: bool
    retry_seconds: float

    def rows(self, endpoint: StreamEndpoint, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
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
                _log.warning("reading again", range=str(left), reason=str(error))
                endpoint = self._wait(endpoint, deadline)

    @staticmethod
    def _wait(endpoint: StreamEndpoint, deadline: float) -> StreamEndpoint:
        """The broker, once it is back."""
        while True:
            time.sleep(RETRY_SECONDS)
            try:
                return endpoint.rediscover()
            except (OSError, EOFError, PenstockError) as error:
                if not is_transient_amqp_error(error) or time.monotonic() > deadline:
                    raise


def _check_gaps(
    batch: pa.RecordBatch,
    wanted: StreamRange,
    expected: int,
    streams: StreamBackend,
    loss: DataLossPolicy,
) -> None:
    """Every message follows the one before, or the broker knows why not."""
    offsets = batch.column(0).to_numpy()
    for row in np.flatnonzero(np.diff(offsets, prepend=expected - 1) != 1).tolist():
        before = int(offsets[row - 1]) + 1 if row else expected
        found = int(offsets[row])
        if streams.is_data_loss(wanted.stream, before, found):
            loss.gap(wanted.stream, before, found)


# Messages that are gone before they were read: fail, or say so and go on.
#
# A gap is never passed over in silence. With `failOnDataLoss` (the default) it ends the query with
# an error that says what happened and what can be done; without, it is logged with how many
# messages have been missed so far.

_ADVICE = (
    "To go on with what is left, set failOnDataLoss=false; to keep messages longer, raise the "
    "stream's x-max-age or x-max-length-bytes"
)


@dataclass(slots=True)
class DataLossPolicy:
    fail: bool
    missed: int = 0  #: messages, as far as they can be counted

    def gap(self, stream: str, expected: int, found: int) -> None:
        """The next message after `expected` that is there is `found`."""
        count = found - expected
        self._lost(
            f"stream {stream!r}: the {count} messages from offset {expected} to {found - 1} are no "
            f"longer there: retention has removed them before they were read. {_ADVICE}",
            stream,
            count,
        )

    def ended(self, stream: str, expected: int, end: int) -> None:
        """The stream ends before an offset it has had already."""
        self._lost(
            f"stream {stream!r} ends at offset {end}, and has been read up to {expected}: it was "
            "deleted and declared anew, or its broker lost data. To read the new stream from its "
            "beginning, set failOnDataLoss=false, or begin with a new checkpoint",
            stream,
            max(expected - end, 0),
        )

    def short(self, stream: str, position: int, stop: int) -> None:
        """Messages that the stream was seen to have are not in it."""
        self._lost(
            f"stream {stream!r} has no messages from offset {position} to {stop - 1}, which it had "
            "when the batch was planned: retention has removed them, or it was deleted and "
            f"declared anew. {_ADVICE}",
            stream,
            stop - position,
        )

    def missing(self, stream: str, position: int) -> None:
        self._lost(
            f"stream {stream!r} is no longer there; it has been read up to offset {position}. If "
            "it was deleted on purpose, set failOnDataLoss=false or take it out of the streams",
            stream,
            0,
        )

    def _lost(self, words: str, stream: str, count: int) -> None:
        if self.fail:
            raise DataLost(words)
        self.missed += count
        _log.warning("messages lost", stream=stream, count=count, total=self.missed, reason=words)
