"""From decoded rows to counts: what each report and event adds, and the new sensor states.

All rows of some sensors and their states in, deltas of each row and the new states out. Rows may be
in any order; they count in stream order. The same rows in other batches give the same counts.
Statuses count nothing, but they have the start-up time of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers, is_run_start
from penstock_hives.occupancy import sensor_states
from penstock_hives.occupancy.anomalies import (
    BIG_ENDIAN,
    BYTE_ORDERS,
    LITTLE_ENDIAN,
    DeviceBoots,
    StatesBefore,
    correct_byte_order,
    count_missed,
    find_duplicates,
    find_notices,
)
from penstock_hives.occupancy.counter_rules import V2_MAX_TOTAL
from penstock_hives.occupancy.deltas import ReportColumns, compute_deltas
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import NO_CLOCK, NO_VALUE, ReadingColumns
from penstock_hives.sensors.columnar.frames import FrameBodies
from penstock_hives.sensors.protocol import EventType, ReportType, messages

_EVENT, _REPORT, _REPORT2 = range(3)  # column `version`
_NO_COUNTER: Final = -1
#: Quality of a report of old firmware that starts at 0 in the other byte order.
_ODD: Final = Quality.FIRST | Quality.RESTART | Quality.CORRUPT


@dataclass(frozen=True, slots=True)
class ReportCounts:
    """Columns in the order of the given rows; and the new states and notices of the sensors."""

    total_in: Numbers
    total_out: Numbers
    delta_in: Numbers  #: corrected for swapped mounting
    delta_out: Numbers
    missed: Numbers
    quality: Numbers
    states: pa.RecordBatch
    notices: pa.RecordBatch


def count_reports(
    rows: pa.Table, statuses: pa.Table, profiles: SensorProfiles, state: pa.Table
) -> ReportCounts:
    """`rows` are of part REPORT, `statuses` of part STATUS of `DECODED_SCHEMA`."""
    return _ReportCounter(rows, statuses, profiles, state).counts()


class _ReportCounter:
    """All columns here are ordered by sensor and then by position in the stream."""

    def __init__(
        self, rows: pa.Table, statuses: pa.Table, profiles: SensorProfiles, state: pa.Table
    ) -> None:
        serials = rows["sensor"].combine_chunks().dictionary_encode()
        serials = serials.combine_chunks() if isinstance(serials, pa.ChunkedArray) else serials
        self._rows = rows
        self._statuses = statuses
        self._serials = _with_status_only(serials.dictionary, statuses, state)
        self._order = _in_order(rows, np.asarray(serials.indices))
        self._sensor = np.asarray(serials.indices).astype(np.int64)[self._order]
        self._profiles = profiles
        self._profile_rows = profiles.rows(self._serials)
        self._states = sensor_states.load_states(state, self._serials)
        self._before = StatesBefore.of(self._states)
        self._version = self._column("version")
        self._utc = self._column("device_utc")
        self._received = self._column("received_at")
        self._quality = self._column("quality")
        self._read_as = np.where(profiles.little, LITTLE_ENDIAN, BIG_ENDIAN)[self._profile_rows]
        self._total_in, self._total_out = self._column("total_in"), self._column("total_out")
        self._delta_in, self._delta_out, self._missed = np.zeros((3, len(self._order)), np.int64)

    def counts(self) -> ReportCounts:
        hints = self._correct_byte_order()
        self._drop_duplicates()
        self._count_events()
        self._count_reports()
        self._count_missed()
        self._sum_up()
        hinted = np.zeros(len(self._serials), np.int64)
        odd = np.flatnonzero((hints != 0) & (self._quality & int(_ODD) != 0))
        hinted[self._sensor[odd]] = hints[odd]
        notices = find_notices(
            self._before,
            self._states,
            self._serials,
            read_as=self._read_as,
            wrap_at=self._profiles.wrap_at[self._profile_rows],
            doubtful=hinted,
        )
        ids = self._profiles.sensor_ids[self._profile_rows]
        states = sensor_states.save_states(self._states, self._serials, ids)
        back = np.empty_like(self._order)
        back[self._order] = np.arange(len(back))
        return ReportCounts(
            total_in=self._total_in[back],
            total_out=self._total_out[back],
            delta_in=self._delta_in[back],
            delta_out=self._delta_out[back],
            missed=self._missed[back],
            quality=self._quality[back],
            states=states,
            notices=notices,
        )

    def _correct_byte_order(self) -> Numbers:
        """Read totals in the byte order that a start has proved; return hints of other reports."""
        proven = self._rows["proven_order"]
        hints = np.zeros(len(self._order), np.int64)
        if proven.null_count < len(proven):
            hints = np.select(
                [np.asarray(pc.equal(proven, name).fill_null(False)) for name in BYTE_ORDERS[1:]],
                [BIG_ENDIAN, LITTLE_ENDIAN],
            )[self._order]
        starts = self._column("report_type") == ReportType.START
        plain = self._profiles.plain[self._profile_rows][self._sensor]
        read_as = self._read_as[self._sensor]
        swapped = correct_byte_order(
            self._sensor,
            (self._total_in, self._total_out),
            np.where(starts, hints, 0),
            read_as,
            (self._version == _REPORT) & ~plain,
            self._states,
        )
        if swapped is not None:
            self._total_in, self._total_out = swapped.total_in, swapped.total_out
            self._quality[swapped.rows] |= int(Quality.REORDERED)
        return np.where(starts | (hints == read_as), 0, hints)

    def _drop_duplicates(self) -> None:
        rows = np.flatnonzero(self._version != _REPORT)
        if not len(rows):
            return
        second = self._version[rows] == _REPORT2
        counter = self._column("counter")[rows].astype(np.uint64)
        low = np.uint64(0xFFFFFF)
        totals = (self._total_in[rows].astype(np.uint64) & low) << np.uint64(24)
        totals |= self._total_out[rows].astype(np.uint64) & low
        bodies = FrameBodies.of(self._rows["raw"]).heads(messages.EVENT_LENGTH, self._order[rows])
        content = np.where(
            second, counter << np.uint64(48) | totals, bodies.view("<u8").reshape(-1)
        )
        again = rows[find_duplicates(self._sensor[rows], content, self._states)]
        self._quality[again] |= int(Quality.DUPLICATE)

    def _count_events(self) -> None:
        rows = np.flatnonzero((self._version == _EVENT) & ~self._duplicates)
        kind = self._column("report_type")[rows]
        self._delta_in[rows] = kind == EventType.ENTRY
        self._delta_out[rows] = kind == EventType.EXIT

    def _count_reports(self) -> None:
        rows = np.flatnonzero((self._version != _EVENT) & ~self._duplicates)
        clock = np.asarray(self._rows["device_time"].cast(pa.int64()).fill_null(NO_CLOCK))
        sensor = self._sensor[rows]
        wrap_at = self._profiles.wrap_at[self._profile_rows][sensor]
        boots = self._boots()
        offset = np.asarray(self._rows["offset"])[self._order[rows]]
        reports = ReportColumns(
            sensor,
            ReadingColumns(
                *(self._total_in[rows], self._total_out[rows], clock[self._order[rows]]),
                *(self._utc[rows], self._received[rows]),
            ),
            start=self._column("report_type")[rows] == ReportType.START,
            profile_top=np.where(self._version[rows] == _REPORT2, V2_MAX_TOTAL, wrap_at),
            boot=boots.before(sensor, offset, self._states),
        )
        deltas = compute_deltas(reports, self._states)
        boots.save(self._states)
        self._delta_in[rows], self._delta_out[rows] = deltas.delta_in, deltas.delta_out
        self._quality[rows] |= deltas.quality

    def _boots(self) -> DeviceBoots:
        sensor = pc.index_in(self._statuses["sensor"], value_set=self._serials).fill_null(NO_VALUE)
        return DeviceBoots.from_statuses(self._statuses, np.asarray(sensor).astype(np.int64))

    def _count_missed(self) -> None:
        counter = self._column("counter", _NO_COUNTER)
        rows = np.flatnonzero((counter != _NO_COUNTER) & ~self._duplicates)
        modulus = np.where(self._version[rows] == _REPORT2, 1 << 16, 1 << 8)
        self._missed[rows] = count_missed(
            self._sensor[rows], counter[rows], modulus, self._utc[rows], self._states
        )

    def _sum_up(self) -> None:
        swapped = self._profiles.swapped[self._profile_rows][self._sensor]
        in_, out = self._delta_in, self._delta_out
        self._delta_in, self._delta_out = np.where(swapped, out, in_), np.where(swapped, in_, out)
        begins = np.flatnonzero(is_run_start(self._sensor))
        if not len(begins):
            return
        states, sensors = self._states, self._sensor[begins]
        states.sum_in[sensors] += np.add.reduceat(self._delta_in, begins)
        states.sum_out[sensors] += np.add.reduceat(self._delta_out, begins)
        for latest, times in ((states.received, self._received), (states.at, self._column("at"))):
            latest[sensors] = np.maximum(latest[sensors], np.maximum.reduceat(times, begins))
        states.flags[sensors] = self._quality[np.append(begins[1:], len(self._sensor)) - 1]

    @property
    def _duplicates(self) -> Flags:
        duplicates: Flags = self._quality & int(Quality.DUPLICATE) != 0
        return duplicates

    def _column(self, name: str, absent: int = 0) -> Numbers:
        column = self._rows[name].cast(pa.int64())
        if column.null_count:
            column = column.fill_null(absent)
        return np.asarray(column)[self._order]


def _with_status_only(serials: pa.Array, statuses: pa.Table, state: pa.Table) -> pa.Array:
    """With sensors that have a state and only a status in this batch."""
    others = pc.unique(statuses["sensor"])
    known = pc.is_in(others, value_set=state["sensor"].combine_chunks())
    others = others.filter(pc.and_(known, pc.invert(pc.is_in(others, value_set=serials))))
    return pa.concat_arrays([serials, others]) if len(others) else serials


def _in_order(rows: pa.Table, sensor: NDArray[np.int32]) -> Numbers:
    """By sensor and then in stream order, in which the rows usually are."""
    offset = np.asarray(rows["offset"])
    streams = rows["stream"].combine_chunks().dictionary_encode()
    stream = np.asarray(streams.indices)
    ahead = (np.diff(stream) == 0) & (np.diff(offset) > 0)
    if ahead.all():
        return _by_sensor(sensor)
    names = np.argsort(np.argsort(np.array(streams.dictionary.to_pylist(), dtype=object)))
    order = np.lexsort((offset, names[stream]))
    return order[_by_sensor(sensor[order])]


def _by_sensor(sensor: NDArray[np.int32]) -> Numbers:
    # NumPy sorts sixteen bits by counting, which is much faster.
    few = not len(sensor) or sensor.max() < 1 << 16
    return np.argsort(sensor.astype(np.uint16) if few else sensor, kind="stable")
