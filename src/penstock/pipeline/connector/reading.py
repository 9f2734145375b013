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
from penstock.pipeline.brokers.contract import Ended, Range, Streams
from penstock.pipeline.brokers.opening import Door
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.loss import LossPolicy
from penstock.wire.amqp091.faults import passing

_log = get_logger(__name__)

RETRY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Reading:
    """How ranges are read: picklable, and the same for all tasks of a query."""

    columns: Columns
    fail_on_loss: bool
    patience: float

    def rows(self, door: Door, wanted: Range) -> Iterator[pa.RecordBatch]:
        loss = LossPolicy(self.fail_on_loss)
        name, position = wanted.stream, wanted.start
        deadline = time.monotonic() + self.patience
        while position < wanted.stop:
            left = Range(name, position, wanted.stop)
            try:
                with closing(door.open()) as streams:
                    for batch in streams.read(left):
                        _check(batch, left, position, streams, loss)
                        position = batch.column(0)[-1].as_py() + 1
                        deadline = time.monotonic() + self.patience
                        yield self.columns.build(batch, name)
                    if position < wanted.stop and streams.lost(name, position, wanted.stop):
                        loss.gap(name, position, wanted.stop)
                    return
            except Ended:
                loss.short(name, position, wanted.stop)
                return
            except NotFound:
                loss.missing(name, position)
                return
            except (OSError, EOFError, PenstockError) as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise
                _log.warning("reading again", range=str(left), reason=str(error))
                door = self._wait(door, deadline)

    @staticmethod
    def _wait(door: Door, deadline: float) -> Door:
        """The broker, once it is back."""
        while True:
            time.sleep(RETRY_SECONDS)
            try:
                return door.again()
            except (OSError, EOFError, PenstockError) as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise


def _check(
    batch: pa.RecordBatch, wanted: Range, expected: int, streams: Streams, loss: LossPolicy
) -> None:
    """Every message follows the one before, or the broker knows why not."""
    offsets = batch.column(0).to_numpy()
    for row in np.flatnonzero(np.diff(offsets, prepend=expected - 1) != 1).tolist():
        before = int(offsets[row - 1]) + 1 if row else expected
        found = int(offsets[row])
        if streams.lost(wanted.stream, before, found):
            loss.gap(wanted.stream, before, found)
