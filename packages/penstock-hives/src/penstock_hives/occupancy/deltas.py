"""Deltas of many reports at once: the rules of `counter_rules`, by column.

Almost every report continues the one before it: a little later, a little more. These are computed
in one pass. Where a report does not, its sensor is stepped through with the rules until a report is
accepted that the next one continues. The result equals stepping through all reports, in any
batches; a test compares the two.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from penstock_hives.arrays import Flags, Numbers, is_run_start
from penstock_hives.occupancy.counter_rules import (
    MIN_REACH,
    CounterReading,
    CounterState,
    apply_reading,
)
from penstock_hives.occupancy.device_clock import MAX_CLOCK_ERROR
from penstock_hives.occupancy.event_rates import EventRate
from penstock_hives.occupancy.sensor_states import (
    COUNTER_FIELDS,
    NO_VALUE,
    READING_FIELDS,
    ReadingColumns,
    SensorStates,
)


@dataclass(frozen=True, slots=True)
class ReportColumns:
    """By sensor and then in stream order."""

    sensor: Numbers  #: its row in the states
    readings: ReadingColumns
    start: Flags
    profile_top: Numbers  #: the greatest total, by profile or version; -1: unknown
    boot: Numbers  #: the last start of the device by its statuses so far; -1: unknown

    def __len__(self) -> int:
        return len(self.sensor)

    def reading(self, row: int) -> CounterReading:
        it = self.readings
        return CounterReading(
            *(int(it.total_in[row]), int(it.total_out[row]), int(it.clock[row])),
            *(int(it.utc[row]), int(it.received[row]), bool(self.start[row])),
        )


@dataclass(frozen=True, slots=True)
class Deltas:
    delta_in: Numbers
    delta_out: Numbers
    quality: Numbers
    accepted: Flags

    @classmethod
    def zero(cls, rows: int) -> Deltas:
        delta_in, delta_out, quality = np.zeros((3, rows), np.int64)
        return cls(delta_in, delta_out, quality, np.zeros(rows, bool))


def compute_deltas(reports: ReportColumns, states: SensorStates) -> Deltas:
    """The delta of each report; updates the states."""
    deltas = Deltas.zero(len(reports))
    if not len(reports):
        return deltas
    begins = np.flatnonzero(is_run_start(reports.sensor))
    ends = np.append(begins[1:], len(reports))
    sensors = reports.sensor[begins]
    clean = _continue(reports, states, begins, deltas)
    breaks = np.flatnonzero(~clean)
    broken = np.unique(np.searchsorted(ends, breaks, "right"))
    rows = breaks.tolist()
    walks = [
        _SensorWalk(reports, states, deltas, rows, int(begins[each]), int(ends[each]))
        for each in broken
    ]
    for walk in walks:
        walk.run()
    counted = np.flatnonzero(deltas.accepted)
    events = deltas.delta_in[counted] + deltas.delta_out[counted]
    states.rates.observe(reports.sensor[counted], reports.readings.received[counted], events)

    last = ends - 1
    states.last.put(sensors, reports.readings, last)
    states.settled[sensors] = True
    # Without a break no total falls: the last totals are the greatest.
    greatest = np.maximum(reports.readings.total_in[last], reports.readings.total_out[last])
    states.seen[sensors] = np.maximum(states.seen[sensors], greatest)
    for walk in walks:
        walk.save()
    return deltas


def _continue(
    reports: ReportColumns, states: SensorStates, begins: Numbers, deltas: Deltas
) -> Flags:
    """Which reports continue the one before; computes their deltas."""
    new, old = reports.readings, _before(reports, states, begins)
    rise_in, rise_out = new.total_in - old.total_in, new.total_out - old.total_out
    few = (rise_in >= 0) & (rise_in <= MIN_REACH) & (rise_out >= 0) & (rise_out <= MIN_REACH)
    again = (rise_in == 0) & (rise_out == 0) & (new.clock == old.clock)
    older = (new.utc < old.utc) & (new.utc >= old.utc - MAX_CLOCK_ERROR)
    started = reports.start | ((old.utc < reports.boot) & (reports.boot <= new.utc))
    clean: Flags = few & ~again & ~older & ~started & (old.total_in != NO_VALUE)
    sensors = reports.sensor[begins]
    clean[begins] &= states.suspect.total_in[sensors] == NO_VALUE
    clean[begins] &= (states.surplus_in[sensors] == 0) & (states.surplus_out[sensors] == 0)
    np.copyto(deltas.delta_in, rise_in, where=clean)
    np.copyto(deltas.delta_out, rise_out, where=clean)
    deltas.accepted[:] = clean
    return clean


def _before(reports: ReportColumns, states: SensorStates, begins: Numbers) -> ReadingColumns:
    """The report before each report, in this batch or an earlier one."""
    before = reports.readings.take(np.maximum(np.arange(len(reports)) - 1, 0))
    before.put(begins, states.last, reports.sensor[begins])
    return before


class _SensorWalk:
    """Steps through the reports of one sensor wherever one does not continue the one before."""

    def __init__(
        self,
        reports: ReportColumns,
        states: SensorStates,
        deltas: Deltas,
        breaks: list[int],
        begin: int,
        end: int,
    ) -> None:
        self._reports = reports
        self._states = states
        self._deltas = deltas
        self._breaks = breaks
        self._sensor = int(reports.sensor[begin])
        self._state = _load(states, self._sensor)
        self._rate: EventRate | None = None
        self._observed = self._row = begin
        self._end = end

    def run(self) -> None:
        continues = True  # the delta of the next report is computed already, unless it is a break
        while self._row < self._end:
            index = bisect_left(self._breaks, self._row)
            stop = min(self._end, self._breaks[index]) if index < len(self._breaks) else self._end
            if continues and stop > self._row and not self._state.has_surplus:
                self._skip(stop)
            else:
                continues = self._step()

    def _skip(self, stop: int) -> None:
        state = self._state
        state.last = last = self._reports.reading(stop - 1)
        state.settled = True
        state.seen = max(state.seen, last.total_in, last.total_out)
        self._row = stop

    def _step(self) -> bool:
        row, deltas, state = self._row, self._deltas, self._state
        state.profile_top = int(self._reports.profile_top[row])
        state.boot = int(self._reports.boot[row])
        step = apply_reading(state, self._reports.reading(row), self._busy)
        deltas.delta_in[row], deltas.delta_out[row] = step.delta_in, step.delta_out
        deltas.quality[row], deltas.accepted[row] = step.quality, step.accepted
        self._row += 1
        return step.accepted

    def _busy(self) -> int:
        """The percentile of all reports accepted before this row."""
        last = self._state.last
        if self._rate is None:
            self._rate = self._states.rates.one(self._sensor)
        deltas, rows = self._deltas, slice(self._observed, self._row)
        counted = deltas.accepted[rows]
        events = (deltas.delta_in[rows] + deltas.delta_out[rows])[counted]
        received = self._reports.readings.received[rows][counted]
        self._rate.observe_all(received, events)
        self._observed = self._row
        return self._rate.percentile(last.received) if last is not None else 0

    def save(self) -> None:
        states, sensor, state = self._states, self._sensor, self._state
        columns = (states.last, states.suspect, states.former)
        readings = (state.last, state.suspect, state.former)
        for column, reading in zip(columns, readings, strict=True):
            values = (NO_VALUE,) * 5 if reading is None else reading[:5]
            for name, value in zip(READING_FIELDS, values, strict=True):
                getattr(column, name)[sensor] = value
        for name in (*COUNTER_FIELDS, "settled", "seen", "learned_top"):
            getattr(states, name)[sensor] = getattr(state, name)


def _load(states: SensorStates, sensor: int) -> CounterState:
    readings = []
    for column in (states.last, states.suspect, states.former):
        values = {name: int(getattr(column, name)[sensor]) for name in READING_FIELDS}
        absent = values["total_in"] == NO_VALUE
        readings.append(None if absent else CounterReading._make((*values.values(), False)))
    last, suspect, former = readings
    state = CounterState(last, suspect, bool(states.settled[sensor]), former=former)
    for name in (*COUNTER_FIELDS, "seen", "learned_top"):
        setattr(state, name, int(getattr(states, name)[sensor]))
    return state
