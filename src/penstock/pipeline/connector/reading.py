"""A range of a stream as Spark's record batches, whole and once, over connections that may break.

The one place where reading is checked, for every broker: messages come in order without a gap, and
the last one wanted does come. A connection that breaks is made again at the next offset wanted, for
as long as something comes in `patience` seconds; what has been handed on is not handed on again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.pipeline.amqp.faults import passing
from penstock.pipeline.brokers.contract import Range
from penstock.pipeline.brokers.opening import Door
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.loss import LossPolicy

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
        position = wanted.start
        deadline = time.monotonic() + self.patience
        while position < wanted.stop:
            left = Range(wanted.stream, position, wanted.stop)
            try:
                for batch in door.open().read(left):
                    yield from self._checked(batch, wanted.stream, position, loss)
                    position = batch.column(0)[-1].as_py() + 1
                    deadline = time.monotonic() + self.patience
            except NotFound:
                loss.missing(wanted.stream, position)
                return
            except (OSError, EOFError, PenstockError) as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise
                _log.warning("reading again", range=str(left), reason=str(error))
                door = self._wait(door, deadline)
                continue
            if position < wanted.stop:
                loss.short(wanted.stream, position, wanted.stop)
                return

    def _checked(
        self, batch: pa.RecordBatch, stream: str, expected: int, loss: LossPolicy
    ) -> Iterator[pa.RecordBatch]:
        offsets = batch.column(0).to_numpy()
        steps = np.diff(offsets, prepend=expected - 1)
        for row in np.flatnonzero(steps != 1).tolist():
            before = int(offsets[row - 1]) + 1 if row else expected
            loss.gap(stream, before, int(offsets[row]))
        yield self.columns.build(batch, stream)

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
