"""From decoded rows to counts: what each report and event adds, and what is known afterwards.

The pure heart of silver: all rows of some sensors and their states in, deltas for each row and the
new states out. Rows may come in any order; they count in the order of their stream. The states that
come out are those to go on with: the same rows in other batches give the same counts. Statuses
count nothing, but tell when a device has started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Numbers
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
from penstock_hives.occupancy.counter_wraps import V2_MAX_TOTAL
from penstock_hives.occupancy.deltas import ReportColumns, compute_deltas
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import NO_CLOCK, NO_VALUE, ReadingColumns
from penstock_hives.sensors.columnar.frames import FrameBodies
from penstock_hives.sensors.protocol import EventType, ReportType, event

_EVENT, _REPORT, _REPORT2 = range(3)  # column `version`
_NO_COUNTER: Final = -1
#: A report of old firmware that begins at 0 in the other byte order is one of these.
_ODD: Final = Quality.FIRST | Quality.RESTART | Quality.CORRUPT


@dataclass(frozen=True, slots=True)
class ReportCounts:
    """For each row that was given, in its place; and of the sensors, what is known and new."""

    total_in: Numbers
    total_out: Numbers
    delta_in: Numbers  #: the right way round, whichever way the sensor is mounted
    delta_out: Numbers
    missed: Numbers
    quality: Numbers
    states: pa.RecordBatch
    notices: pa.RecordBatch


def count_reports(
    rows: pa.Table, statuses: pa.Table, profiles: SensorProfiles, state: pa.Table
) -> ReportCounts:
    """Of rows of `DECODED` that are of part REPORT, and those of part STATUS."""
    return _ReportCounter(rows, statuses, profiles, state).counts()


class _ReportCounter:
    """All columns here are by sensor and then in the order of the stream."""

    def __init__(
        self, rows: pa.Table, statuses: pa.Table, profiles: SensorProfiles, state: pa.Table
    ) -> None:
        named = rows["sensor"].combine_chunks().dictionary_encode()
        named = named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named
        self._rows = rows
        self._statuses = statuses
        self._serials = _also(named.dictionary, statuses, state)
        self._order = _in_order(rows, np.asarray(named.indices))
        self._sensor = np.asarray(named.indices).astype(np.int64)[self._order]
        self._profiles = profiles
        self._places = profiles.places(self._serials)
        self._states = sensor_states.load_states(state, self._serials)
        self._before = StatesBefore.of(self._states)
        self._version = self._column("version")
        self._utc = self._column("device_utc")
        self._received = self._column("received_at")
        self._quality = self._column("quality")
        self._read_as = np.where(profiles.little, LITTLE_ENDIAN, BIG_ENDIAN)[self._places]
        self._total_in, self._total_out = self._column("total_in"), self._column("total_out")
        self._delta_in, self._delta_out, self._missed = np.zeros((3, len(self._order)), np.int64)

    def counts(self) -> ReportCounts:
        hints = self._turn()
        self._drop_copies()
        self._count_events()
        self._count_reports()
        self._count_missed()
        self._sum_up()
        hinted = np.zeros(len(self._serials), np.int64)
        odd = np.flatnonzero((hints != 0) & (self._quality & int(_ODD) != 0))
        hinted[self._sensor[odd]] = hints[odd]
        found = find_notices(
            self._before,
            self._states,
            self._serials,
            read_as=self._read_as,
            wrap_at=self._profiles.wrap_at[self._places],
            doubtful=hinted,
        )
        ids = self._profiles.sensor_ids[self._places]
        saved = sensor_states.save_states(self._states, self._serials, ids)
        back = np.empty_like(self._order)
        back[self._order] = np.arange(len(back))
        return ReportCounts(
            total_in=self._total_in[back],
            total_out=self._total_out[back],
            delta_in=self._delta_in[back],
            delta_out=self._delta_out[back],
            missed=self._missed[back],
            quality=self._quality[back],
            states=saved,
            notices=found,
        )

    def _turn(self) -> Numbers:
        """Totals in the byte order that a start has proved; returns what others hint at."""
        told = self._rows["proven_order"]
        hints = np.zeros(len(self._order), np.int64)
        if told.null_count < len(told):
            hints = np.select(
                [np.asarray(pc.equal(told, name).fill_null(False)) for name in BYTE_ORDERS[1:]],
                [BIG_ENDIAN, LITTLE_ENDIAN],
            )[self._order]
        starts = self._column("report_type") == ReportType.START
        plain = self._profiles.plain[self._places][self._sensor]
        read_as = self._read_as[self._sensor]
        turned = correct_byte_order(
            self._sensor,
            (self._total_in, self._total_out),
            np.where(starts, hints, 0),
            read_as,
            (self._version == _REPORT) & ~plain,
            self._states,
        )
        if turned is not None:
            self._total_in, self._total_out = turned.total_in, turned.total_out
            self._quality[turned.rows] |= int(Quality.REORDERED)
        return np.where(starts | (hints == read_as), 0, hints)

    def _drop_copies(self) -> None:
        rows = np.flatnonzero(self._version != _REPORT)
        if not len(rows):
            return
        second = self._version[rows] == _REPORT2
        counter = self._column("counter")[rows].astype(np.uint64)
        low = np.uint64(0xFFFFFF)
        totals = (self._total_in[rows].astype(np.uint64) & low) << np.uint64(24)
        totals |= self._total_out[rows].astype(np.uint64) & low
        bodies = FrameBodies.of(self._rows["raw"]).heads(event.EVENT_LENGTH, self._order[rows])
        content = np.where(
            second, counter << np.uint64(48) | totals, bodies.view("<u8").reshape(-1)
        )
        again = rows[find_duplicates(self._sensor[rows], content, self._states)]
        self._quality[again] |= int(Quality.DUPLICATE)

    def _count_events(self) -> None:
        rows = np.flatnonzero((self._version == _EVENT) & ~self._copies)
        kind = self._column("report_type")[rows]
        self._delta_in[rows] = kind == EventType.ENTRY
        self._delta_out[rows] = kind == EventType.EXIT

    def _count_reports(self) -> None:
        rows = np.flatnonzero((self._version != _EVENT) & ~self._copies)
        clock = np.asarray(self._rows["device_time"].cast(pa.int64()).fill_null(NO_CLOCK))
        sensor = self._sensor[rows]
        told = self._profiles.wrap_at[self._places][sensor]
        starts = self._starts()
        reports = ReportColumns(
            sensor,
            ReadingColumns(
                *(self._total_in[rows], self._total_out[rows], clock[self._order[rows]]),
                *(self._utc[rows], self._received[rows]),
            ),
            start=self._column("report_type")[rows] == ReportType.START,
            profile_top=np.where(self._version[rows] == _REPORT2, V2_MAX_TOTAL, told),
            boot=starts.before(sensor, _places(self._rows)[self._order[rows]], self._states),
        )
        found = compute_deltas(reports, self._states)
        starts.remember(self._states)
        self._delta_in[rows], self._delta_out[rows] = found.delta_in, found.delta_out
        self._quality[rows] |= found.quality

    def _starts(self) -> DeviceBoots:
        sensor = pc.index_in(self._statuses["sensor"], value_set=self._serials).fill_null(NO_VALUE)
        return DeviceBoots.told(
            self._statuses, np.asarray(sensor).astype(np.int64), _places(self._statuses)
        )

    def _count_missed(self) -> None:
        counter = self._column("counter", _NO_COUNTER)
        rows = np.flatnonzero((counter != _NO_COUNTER) & ~self._copies)
        modulus = np.where(self._version[rows] == _REPORT2, 1 << 16, 1 << 8)
        self._missed[rows] = count_missed(
            self._sensor[rows], counter[rows], modulus, self._utc[rows], self._states
        )

    def _sum_up(self) -> None:
        swapped = self._profiles.swapped[self._places][self._sensor]
        in_, out = self._delta_in, self._delta_out
        self._delta_in, self._delta_out = np.where(swapped, out, in_), np.where(swapped, in_, out)
        begins = np.flatnonzero(np.diff(self._sensor, prepend=NO_VALUE))
        if not len(begins):
            return
        states, sensors = self._states, self._sensor[begins]
        states.sum_in[sensors] += np.add.reduceat(self._delta_in, begins)
        states.sum_out[sensors] += np.add.reduceat(self._delta_out, begins)
        for held, told in ((states.received, self._received), (states.at, self._column("at"))):
            held[sensors] = np.maximum(held[sensors], np.maximum.reduceat(told, begins))
        states.flags[sensors] = self._quality[np.append(begins[1:], len(self._sensor)) - 1]

    @property
    def _copies(self) -> Flags:
        copies: Flags = self._quality & int(Quality.DUPLICATE) != 0
        return copies

    def _column(self, name: str, absent: int = 0) -> Numbers:
        column = self._rows[name].cast(pa.int64())
        if column.null_count:
            column = column.fill_null(absent)
        return np.asarray(column)[self._order]


def _also(serials: pa.Array, statuses: pa.Table, state: pa.Table) -> pa.Array:
    """With those of which there is a state and only a status now."""
    others = pc.unique(statuses["sensor"])
    known = pc.is_in(others, value_set=state["sensor"].combine_chunks())
    others = others.filter(pc.and_(known, pc.invert(pc.is_in(others, value_set=serials))))
    return pa.concat_arrays([serials, others]) if len(others) else serials


def _places(rows: pa.Table) -> Numbers:
    """Where in the stream; a sensor's messages are all in one."""
    return np.asarray(rows["offset"])


def _in_order(rows: pa.Table, sensor: NDArray[np.int32]) -> Numbers:
    """By sensor, and then as the stream has them, which most often they are already."""
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
    # NumPy sorts sixteen bits by counting, in a fraction of the time.
    few = not len(sensor) or sensor.max() < 1 << 16
    return np.argsort(sensor.astype(np.uint16) if few else sensor, kind="stable")
