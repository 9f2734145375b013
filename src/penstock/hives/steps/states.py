"""What is remembered of sensors from one batch to the next: rows in the database, columns here.

`STATE` is the row as others see it. What only the rules need (the tally of rates, a report that is
not believed yet, the last events) is one column of bytes, `memory`, which `memories` packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.hives.steps.rates import Rates
from penstock.hives.steps.wraps import UNKNOWN

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

STATE: Final = pa.schema(
    [
        ("sensor", pa.string()),
        ("sensor_id", pa.int64()),
        ("total_in", pa.int64()),  # of the last report that was believed; null before it
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # of that report, by the device's own clock
        ("received_at", pa.timestamp("us", "UTC")),  # of the last message, whatever it was worth
        ("at", pa.timestamp("us", "UTC")),  # the latest moment it told of
        ("rate_p99", pa.float64()),
        ("sum_in", pa.int64()),  # all that was ever counted, the right way round
        ("sum_out", pa.int64()),
        ("counter", pa.int32()),
        ("flags", pa.int32()),  # quality of the last message
        ("memory", pa.binary()),
    ]
)
#: No clock: a report without a date.
NO_CLOCK: Final = np.iinfo(np.int64).min
NOTHING: Final = -1
#: The fields of a reading, in the order of `known.Reading`.
READING: Final = ("total_in", "total_out", "clock", "utc", "received")


@dataclass(slots=True)
class Readings:
    """Reports of many sensors, one each; a total of -1 is no report. See `known.Reading`."""

    total_in: Numbers
    total_out: Numbers
    clock: Numbers
    utc: Numbers
    received: Numbers

    @classmethod
    def none(cls, sensors: int) -> Readings:
        return cls(*(np.full(sensors, NOTHING, np.int64) for _ in READING))

    def take(self, rows: Numbers) -> Readings:
        return Readings(*(getattr(self, name)[rows] for name in READING))

    def put(self, rows: Numbers, other: Readings, places: Numbers) -> None:
        for name in READING:
            getattr(self, name)[rows] = getattr(other, name)[places]


#: Numbers of `known.Known` that are remembered as they are.
REMEMBERED: Final = ("began", "assumed_in", "assumed_out", "owed_in", "owed_out")


@dataclass(slots=True)
class States:
    """A row for each sensor, changed in place as its messages are read."""

    last: Readings
    suspect: Readings
    former: Readings
    boot: Numbers  #: the last start of the device that a status told; -1: none
    began: Numbers
    assumed_in: Numbers
    assumed_out: Numbers
    owed_in: Numbers
    owed_out: Numbers
    settled: Flags
    seen: Numbers
    learned_top: Numbers
    order: Numbers  #: proved: 1 big, 2 little; 0 nothing
    rates: Rates
    sum_in: Numbers
    sum_out: Numbers
    counter: Numbers  #: -1: none yet
    counter_utc: Numbers
    received: Numbers
    at: Numbers
    flags: Numbers
    #: The last events of the sensors that send them, by sensor and then in order; with its owner.
    recent: NDArray[np.uint64]
    recent_of: Numbers

    @classmethod
    def unknown(cls, sensors: int) -> States:
        def column(value: int) -> Numbers:
            return np.full(sensors, value, np.int64)

        return cls(
            last=Readings.none(sensors),
            suspect=Readings.none(sensors),
            former=Readings.none(sensors),
            boot=column(NOTHING),
            began=column(NOTHING),
            assumed_in=column(0),
            assumed_out=column(0),
            owed_in=column(0),
            owed_out=column(0),
            settled=np.zeros(sensors, bool),
            seen=column(0),
            learned_top=column(UNKNOWN),
            order=column(0),
            rates=Rates.unknown(sensors),
            sum_in=column(0),
            sum_out=column(0),
            counter=column(NOTHING),
            counter_utc=column(0),
            received=column(NOTHING),
            at=column(NOTHING),
            flags=column(0),
            recent=np.zeros(0, np.uint64),
            recent_of=np.zeros(0, np.int64),
        )

    def __len__(self) -> int:
        return len(self.seen)


def empty() -> pa.Table:
    """The state of a system that has not heard of any sensor."""
    return STATE.empty_table()


def rows_of(table: pa.Table, serials: pa.Array) -> tuple[pa.Table, Numbers]:
    """The rows of these sensors, and which of the sensors each row is of."""
    known = table["sensor"].combine_chunks()
    found = pc.index_in(serials, value_set=known)
    sensors = np.flatnonzero(np.asarray(found.is_valid()))
    return table.take(found.drop_null()), sensors
