"""Anomalies of devices: byte order, duplicates, missed messages, restarts; and notices about them.

*Byte order*: a START report has totals of 0, hence 32 on the wire, which proves its byte order;
later totals of the sensor are read in that order. *Duplicates* are found by content among the last
messages of a sensor (events and reports v2). *Missed messages* are counted by message counters; a
late message reduces the count. *Restarts* that no report shows are found by the start-up time of
statuses. A *notice* informs the operator once about a device; counts are correct without a reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers, is_run_start
from penstock_hives.occupancy.device_clock import SECOND_MICROS
from penstock_hives.occupancy.sensor_states import NO_VALUE, SensorStates
from penstock_hives.sensors.protocol import ByteOrder
from penstock_hives.sensors.protocol.messages import MIN_STARTUP_TIME
from penstock_hives.sensors.protocol.report import FIELD_OFFSET

NOTICE_SCHEMA: Final = pa.schema(
    [("sensor", pa.string()), ("notice", pa.string()), ("detail", pa.string())]
)

#: By the numbers of `SensorStates.order`.
BYTE_ORDERS: Final = ("", ByteOrder.BIG.value, ByteOrder.LITTLE.value)


class SensorNotice(StrEnum):
    BYTE_ORDER_PROVED = "byte_order_proved"  #: differs from the profile; totals are read by it
    BYTE_ORDER_DOUBTFUL = "byte_order_doubtful"  #: a likely start-up report has another one
    WRAP_AT_LEARNED = "wrap_at_learned"  #: learned from a wrap; the profile does not have it
    WRAP_AT_EXCLUDED = "wrap_at_excluded"  #: totals exceed the wrap point of the profile


@dataclass(frozen=True, slots=True)
class StatesBefore:
    """What notices compare with the states after a batch."""

    order: Numbers
    learned_top: Numbers
    seen: Numbers

    @classmethod
    def of(cls, states: SensorStates) -> StatesBefore:
        return cls(states.order.copy(), states.learned_top.copy(), states.seen.copy())


def find_notices(
    before: StatesBefore,
    after: SensorStates,
    serials: pa.Array,
    *,
    read_as: Numbers,
    wrap_at: Numbers,
    doubtful: Numbers,
) -> pa.RecordBatch:
    """Columns by sensor: byte order and wrap point of the profile, and the byte order that a report
    of old firmware hints at, 0 if none."""
    proved = (after.order != before.order) & (after.order != 0) & (after.order != read_as)
    learned = (after.learned_top != before.learned_top) & (after.learned_top != NO_VALUE)
    excluded = (wrap_at != NO_VALUE) & (before.seen <= wrap_at) & (after.seen > wrap_at)
    notices: list[tuple[int, str, str]] = []
    for sensor in np.flatnonzero(proved).tolist():
        notices.append((sensor, SensorNotice.BYTE_ORDER_PROVED, BYTE_ORDERS[after.order[sensor]]))
    for sensor in np.flatnonzero((doubtful != 0) & (doubtful != after.order)).tolist():
        notices.append((sensor, SensorNotice.BYTE_ORDER_DOUBTFUL, BYTE_ORDERS[doubtful[sensor]]))
    for sensor in np.flatnonzero(learned).tolist():
        notices.append((sensor, SensorNotice.WRAP_AT_LEARNED, str(after.learned_top[sensor])))
    for sensor in np.flatnonzero(excluded).tolist():
        notices.append((sensor, SensorNotice.WRAP_AT_EXCLUDED, str(wrap_at[sensor])))
    columns = [
        serials.take(pa.array([sensor for sensor, _, _ in notices], pa.int64())),
        pa.array([str(notice) for _, notice, _ in notices], pa.string()),
        pa.array([detail for _, _, detail in notices], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=NOTICE_SCHEMA)


BIG_ENDIAN: Final = 1
LITTLE_ENDIAN: Final = 2


@dataclass(frozen=True, slots=True)
class SwappedTotals:
    total_in: Numbers
    total_out: Numbers
    rows: Flags


def correct_byte_order(
    sensor: Numbers,
    totals: tuple[Numbers, Numbers],
    proved: Numbers,
    read_as: Numbers,
    swappable: Flags,
    states: SensorStates,
) -> SwappedTotals | None:
    """The totals in the proved byte order; None if all were read in it.

    `proved` is the order that a row proves, usually 0; `read_as` the one it was decoded in;
    `swappable` marks reports v1 with 32 added, the only ones that prove an order."""
    proof = (proved != 0) & swappable
    if not (proof.any() or states.order[sensor].any()):
        return None
    # The last proof up to each row, of the same sensor, or that of the state.
    last = np.maximum.accumulate(np.where(proof, np.arange(len(sensor)), -1))
    own = (last >= 0) & (sensor[np.maximum(last, 0)] == sensor)
    order = np.where(own, proved[np.maximum(last, 0)], states.order[sensor])
    states.order[sensor] = order  # the last row of a sensor wins
    rows = swappable & (order != 0) & (order != read_as)
    if not rows.any():
        return None
    total_in, total_out = (np.where(rows, _swap_bytes(total), total) for total in totals)
    return SwappedTotals(total_in, total_out, rows)


def _swap_bytes(total: Numbers) -> Numbers:
    wire = total + FIELD_OFFSET & 0xFFFF
    swapped: Numbers = ((wire & 0xFF) << 8 | wire >> 8) - FIELD_OFFSET & 0xFFFF
    return swapped


Contents = NDArray[np.uint64]

#: Messages of a sensor that are compared: about a minute at a busy door.
DUPLICATE_WINDOW: Final = 64


def find_duplicates(sensor: Numbers, content: Contents, states: SensorStates) -> Flags:
    """Which messages, by sensor and then in order, are copies. Updates `states.recent`."""
    stored = len(states.recent)
    owner = np.concatenate([states.recent_of, sensor])
    every = np.concatenate([states.recent, content])
    # Stored messages are earlier: a stable sort puts them first for each sensor.
    by_sensor = np.argsort(owner, kind="stable")
    owner, every = owner[by_sensor], every[by_sensor]
    alike = np.lexsort((every, owner))  # stable: equal contents stay in order
    same = np.zeros(len(owner), bool)
    same[1:] = (
        (owner[alike[1:]] == owner[alike[:-1]])
        & (every[alike[1:]] == every[alike[:-1]])
        & (np.diff(alike) <= DUPLICATE_WINDOW)
    )
    again = np.zeros(len(owner), bool)
    again[by_sensor[alike]] = same
    ends = np.searchsorted(owner, owner, "right")
    recent = ends - np.arange(len(owner)) <= DUPLICATE_WINDOW
    states.recent, states.recent_of = every[recent], owner[recent]
    return again[stored:]


def count_missed(
    sensor: Numbers, counter: Numbers, modulus: Numbers, utc: Numbers, states: SensorStates
) -> Numbers:
    """Missed messages before each message; by sensor and then in order, without duplicates."""
    missed = np.zeros(len(sensor), np.int64)
    if not len(sensor):
        return missed
    begins = np.flatnonzero(is_run_start(sensor))
    before, earlier = np.roll(counter, 1), np.roll(utc, 1)
    before[begins] = states.counter[sensor[begins]]
    earlier[begins] = states.counter_utc[sensor[begins]]
    ahead = (counter - before) % modulus
    # More than half the modulus is a step back, unless the time went forward.
    back = (utc < earlier) | ((utc == earlier) & (ahead > modulus // 2))
    back &= ahead > 0
    missed = np.where(back, ahead - modulus, ahead) - 1
    missed[ahead == 0] += modulus[ahead == 0]
    missed[before == NO_VALUE] = 0
    ends = np.append(begins[1:], len(sensor)) - 1
    states.counter[sensor[ends]] = counter[ends]
    states.counter_utc[sensor[ends]] = utc[ends]
    return missed


@dataclass(frozen=True, slots=True)
class DeviceBoots:
    """Starts of devices, by sensor and then in stream order."""

    sensor: Numbers  #: its row in the states
    offset: Numbers
    at: Numbers  #: the latest start of the sensor so far

    @classmethod
    def from_statuses(cls, statuses: pa.Table, sensor: Numbers) -> DeviceBoots:
        """`statuses` are of part STATUS of `DECODED_SCHEMA`; `sensor` is -1 for others' rows."""
        offset = np.asarray(statuses["offset"])
        startup = np.asarray(pc.struct_field(statuses["status"], "startup")).astype(np.int64)
        rows = np.flatnonzero((startup >= MIN_STARTUP_TIME) & (sensor >= 0))
        rows = rows[np.lexsort((offset[rows], sensor[rows]))]
        # Starts are seconds of 32 bits: with the sensor in the bits above, one pass finds the
        # latest of each sensor.
        latest = np.maximum.accumulate(sensor[rows] << 32 | startup[rows])
        return cls(sensor[rows], offset[rows], (latest & 0xFFFFFFFF) * SECOND_MICROS)

    def before(self, sensor: Numbers, offset: Numbers, states: SensorStates) -> Numbers:
        stored: Numbers = states.boot[sensor]
        if not len(self.sensor):
            return stored
        span = int(max(self.offset.max(), offset.max(initial=0))) + 1
        row = np.searchsorted(self.sensor * span + self.offset, sensor * span + offset) - 1
        found = (row >= 0) & (self.sensor[np.maximum(row, 0)] == sensor)
        return np.where(found, np.maximum(self.at[np.maximum(row, 0)], stored), stored)

    def save(self, states: SensorStates) -> None:
        np.maximum.at(states.boot, self.sensor, self.at)
