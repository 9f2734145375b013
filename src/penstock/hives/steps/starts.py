"""When devices started, as their statuses tell: restarts that no report shows.

A device that starts again, and whose next reports are lost until its totals have overtaken those
from before, looks like one that went on. Its statuses have the moment of the start, by the same
clock as reports; the first goes out with the first report. So each report is given the last start
that was told before it in the stream, and the rules look whether it lies between two reports.

A status that has the seconds since the start instead of a moment tells nothing here: it may have
been long on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.hives.sensors.messages.status import EARLIEST
from penstock.hives.steps.clocks import SECOND
from penstock.hives.steps.states import States

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Starts:
    """By sensor and then in the order of the stream, as `where` has them."""

    sensor: Numbers  #: its row in the states
    where: Numbers
    at: Numbers  #: the latest start of the sensor so far

    @classmethod
    def told(cls, statuses: pa.Table, sensor: Numbers, where: Numbers) -> Starts:
        """Of rows of `DECODED` that are of part STATUS, of these sensors."""
        startup = np.asarray(pc.struct_field(statuses["status"], "startup")).astype(np.int64)
        rows = np.flatnonzero((startup >= EARLIEST) & (sensor >= 0))
        rows = rows[np.lexsort((where[rows], sensor[rows]))]
        # Starts are seconds of 32 bits: with the sensor above them one pass finds the latest.
        latest = np.maximum.accumulate(sensor[rows] << 32 | startup[rows])
        return cls(sensor[rows], where[rows], (latest & 0xFFFFFFFF) * SECOND)

    def before(self, sensor: Numbers, where: Numbers, states: States) -> Numbers:
        """For each report, by sensor, the last start that was known by then."""
        known: Numbers = states.boot[sensor]
        if not len(self.sensor):
            return known
        span = int(max(self.where.max(), where.max(initial=0))) + 1
        place = np.searchsorted(self.sensor * span + self.where, sensor * span + where) - 1
        there = (place >= 0) & (self.sensor[np.maximum(place, 0)] == sensor)
        return np.where(there, np.maximum(self.at[np.maximum(place, 0)], known), known)

    def remember(self, states: States) -> None:
        np.maximum.at(states.boot, self.sensor, self.at)
