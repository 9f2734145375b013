"""Anomalies of devices: byte order, duplicates, missed messages, restarts; and notices about them.

*Byte order*: a START report has totals of 0, hence 32 on the wire, which proves its byte order;
later totals of the sensor are read in that order. *Duplicates* are found by content among the last
messages of a sensor (events and reports v2). *Missed messages* are counted by message counters; a
late message reduces the count. *Restarts* that no report shows are found by the start-up time of
statuses. A *notice* tells the operator what was learned about a device, once; counts are right
without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.occupancy.counter_wraps import UNKNOWN_WRAP
from penstock_hives.occupancy.device_clock import SECOND_MICROS
from penstock_hives.occupancy.sensor_states import NO_VALUE, SensorStates
from penstock_hives.sensors.protocol import ByteOrder
from penstock_hives.sensors.protocol.report import FIELD_OFFSET
from penstock_hives.sensors.protocol.status import MIN_STARTUP_TIME

NOTICE_SCHEMA: Final = pa.schema(
    [("sensor", pa.string()), ("notice", pa.string()), ("detail", pa.string())]
)

#: By the numbers of `orders`.
BYTE_ORDERS: Final = ("", ByteOrder.BIG.value, ByteOrder.LITTLE.value)


class SensorNotice(StrEnum):
    BYTE_ORDER_PROVED = "byte_order_proved"  #: other than the profile's; totals are read by it
    BYTE_ORDER_DOUBTFUL = "byte_order_doubtful"  #: what may be a start-up report is of another
    WRAP_AT_LEARNED = "wrap_at_learned"  #: seen to wrap there, and no profile says where it does
    WRAP_AT_EXCLUDED = "wrap_at_excluded"  #: totals above the wrap point of the profile


@dataclass(frozen=True, slots=True)
class StatesBefore:
    """What was known, to tell what is new."""

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
    """By sensor: the byte order and wrap point of its profile, and the order that a report of old
    firmware hints at, 0 if none does."""
    proved = (after.order != before.order) & (after.order != 0) & (after.order != read_as)
    learned = (after.learned_top != before.learned_top) & (after.learned_top != UNKNOWN_WRAP)
    excluded = (wrap_at != UNKNOWN_WRAP) & (before.seen <= wrap_at) & (after.seen > wrap_at)
    told: list[tuple[int, str, str]] = []
    for sensor in np.flatnonzero(proved).tolist():
        told.append((sensor, SensorNotice.BYTE_ORDER_PROVED, BYTE_ORDERS[after.order[sensor]]))
    for sensor in np.flatnonzero((doubtful != 0) & (doubtful != after.order)).tolist():
        told.append((sensor, SensorNotice.BYTE_ORDER_DOUBTFUL, BYTE_ORDERS[doubtful[sensor]]))
    for sensor in np.flatnonzero(learned).tolist():
        told.append((sensor, SensorNotice.WRAP_AT_LEARNED, str(after.learned_top[sensor])))
    for sensor in np.flatnonzero(excluded).tolist():
        told.append((sensor, SensorNotice.WRAP_AT_EXCLUDED, str(wrap_at[sensor])))
    columns = [
        serials.take(pa.array([sensor for sensor, _, _ in told], pa.int64())),
        pa.array([str(notice) for _, notice, _ in told], pa.string()),
        pa.array([detail for _, _, detail in told], pa.string()),
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
    turnable: Flags,
    states: SensorStates,
) -> SwappedTotals | None:
    """The totals in the order that was proved, if any were read in another.

    `proved` is the order a row proves, 0 most often; `read_as` the one it was decoded in;
    `turnable` marks reports v1 with 32 added, of which alone there are proofs."""
    proof = (proved != 0) & turnable
    if not (proof.any() or states.order[sensor].any()):
        return None
    # For each row, the last proof up to it: of its own sensor, or what the state has.
    place = np.maximum.accumulate(np.where(proof, np.arange(len(sensor)), -1))
    own = (place >= 0) & (sensor[np.maximum(place, 0)] == sensor)
    order = np.where(own, proved[np.maximum(place, 0)], states.order[sensor])
    states.order[sensor] = order  # of several rows of a sensor, the last stays
    rows = turnable & (order != 0) & (order != read_as)
    if not rows.any():
        return None
    total_in, total_out = (np.where(rows, _swap_bytes(total), total) for total in totals)
    return SwappedTotals(total_in, total_out, rows)


def _swap_bytes(total: Numbers) -> Numbers:
    wire = total + FIELD_OFFSET & 0xFFFF
    turned: Numbers = ((wire & 0xFF) << 8 | wire >> 8) - FIELD_OFFSET & 0xFFFF
    return turned


Contents = NDArray[np.uint64]

#: How many messages of a sensor are remembered: a minute of a door that is never still.
DUPLICATE_WINDOW: Final = 64


def find_duplicates(sensor: Numbers, content: Contents, states: SensorStates) -> Flags:
    """Which messages, by sensor and then in their order, are copies. The states remember them."""
    held = len(states.recent)
    owner = np.concatenate([states.recent_of, sensor])
    every = np.concatenate([states.recent, content])
    # What is remembered came before: a stable sort puts it in front, sensor by sensor.
    by_sensor = np.argsort(owner, kind="stable")
    owner, every = owner[by_sensor], every[by_sensor]
    alike = np.lexsort((every, owner))  # stable as well: the same contents are in order
    same = np.zeros(len(owner), bool)
    same[1:] = (
        (owner[alike[1:]] == owner[alike[:-1]])
        & (every[alike[1:]] == every[alike[:-1]])
        & (np.diff(alike) <= DUPLICATE_WINDOW)
    )
    again = np.zeros(len(owner), bool)
    again[by_sensor[alike]] = same
    ends = np.searchsorted(owner, owner, "right")
    kept = ends - np.arange(len(owner)) <= DUPLICATE_WINDOW
    states.recent, states.recent_of = every[kept], owner[kept]
    return again[held:]


def count_missed(
    sensor: Numbers, counter: Numbers, modulus: Numbers, utc: Numbers, states: SensorStates
) -> Numbers:
    """Of messages with a counter, by sensor and then in their order, without duplicates."""
    missed = np.zeros(len(sensor), np.int64)
    if not len(sensor):
        return missed
    begins = np.flatnonzero(np.diff(sensor, prepend=NO_VALUE))
    before, earlier = np.roll(counter, 1), np.roll(utc, 1)
    before[begins] = states.counter[sensor[begins]]
    earlier[begins] = states.counter_utc[sensor[begins]]
    ahead = (counter - before) % modulus
    # A step of more than half the counter is a step back, unless time says that it went on.
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
    """By sensor and then in the order of the stream, as `where` has them."""

    sensor: Numbers  #: its row in the states
    where: Numbers
    at: Numbers  #: the latest start of the sensor so far

    @classmethod
    def told(cls, statuses: pa.Table, sensor: Numbers, where: Numbers) -> DeviceBoots:
        """Of rows of `DECODED` that are of part STATUS, of these sensors."""
        startup = np.asarray(pc.struct_field(statuses["status"], "startup")).astype(np.int64)
        rows = np.flatnonzero((startup >= MIN_STARTUP_TIME) & (sensor >= 0))
        rows = rows[np.lexsort((where[rows], sensor[rows]))]
        # Starts are seconds of 32 bits: with the sensor above them one pass finds the latest.
        latest = np.maximum.accumulate(sensor[rows] << 32 | startup[rows])
        return cls(sensor[rows], where[rows], (latest & 0xFFFFFFFF) * SECOND_MICROS)

    def before(self, sensor: Numbers, where: Numbers, states: SensorStates) -> Numbers:
        """For each report, by sensor, the last start that was known by then."""
        known: Numbers = states.boot[sensor]
        if not len(self.sensor):
            return known
        span = int(max(self.where.max(), where.max(initial=0))) + 1
        place = np.searchsorted(self.sensor * span + self.where, sensor * span + where) - 1
        there = (place >= 0) & (self.sensor[np.maximum(place, 0)] == sensor)
        return np.where(there, np.maximum(self.at[np.maximum(place, 0)], known), known)

    def remember(self, states: SensorStates) -> None:
        np.maximum.at(states.boot, self.sensor, self.at)
