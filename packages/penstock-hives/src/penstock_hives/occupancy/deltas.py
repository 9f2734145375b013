"""Deltas of many reports at once: the rules of `rules`, by the column.

Almost every report goes on from the one before it: a little later, a little more. All these are
told in one go. Where one does not, its sensor is stepped through by the rules, from there until a
report is believed that the next one goes on from. The answer is that of stepping through all of
them, whatever batches they come in, and a test holds it to that.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from penstock_hives.arrays import Flags, Numbers
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
    """By sensor and then in the order of their stream."""

    sensor: Numbers  #: its row in the states
    readings: ReadingColumns
    start: Flags
    profile_top: Numbers  #: the greatest total, by profile or version; -1: nobody knows
    boot: Numbers  #: when the device last started, by its statuses so far; -1: nobody knows

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
    """What each report adds; the states then know of all of them."""
    deltas = Deltas.zero(len(reports))
    if not len(reports):
        return deltas
    begins = np.flatnonzero(np.diff(reports.sensor, prepend=NO_VALUE))
    ends = np.append(begins[1:], len(reports))
    sensors = reports.sensor[begins]
    clean = _go_on(reports, states, begins, deltas)
    breaks = np.flatnonzero(~clean)
    broken = np.unique(np.searchsorted(ends, breaks, "right"))
    rows = breaks.tolist()
    walks = [
        _SensorWalk(reports, states, deltas, rows, int(begins[each]), int(ends[each]))
        for each in broken
    ]
    for walk in walks:
        walk.go()
    counted = np.flatnonzero(deltas.accepted)
    events = deltas.delta_in[counted] + deltas.delta_out[counted]
    states.rates.observe(reports.sensor[counted], reports.readings.received[counted], events)

    last = ends - 1
    states.last.put(sensors, reports.readings, last)
    states.settled[sensors] = True
    # In a stretch without a break no total falls: the last are the greatest.
    greatest = np.maximum(reports.readings.total_in[last], reports.readings.total_out[last])
    states.seen[sensors] = np.maximum(states.seen[sensors], greatest)
    for walk in walks:
        walk.keep()
    return deltas


def _go_on(reports: ReportColumns, states: SensorStates, begins: Numbers, deltas: Deltas) -> Flags:
    """Which reports follow the one before without any doubt; their deltas are told."""
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
    """For each report the one before it, in this batch or an earlier one."""
    before = reports.readings.take(np.maximum(np.arange(len(reports)) - 1, 0))
    before.put(begins, states.last, reports.sensor[begins])
    return before


class _SensorWalk:
    """The reports of one sensor, stepped through wherever one does not go on from another."""

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
        self._known = _known(states, self._sensor)
        self._rate: EventRate | None = None
        self._told = self._row = begin
        self._end = end

    def go(self) -> None:
        follows = True  # the next report is told already, if it is no break
        while self._row < self._end:
            place = bisect_left(self._breaks, self._row)
            stop = min(self._end, self._breaks[place]) if place < len(self._breaks) else self._end
            if follows and stop > self._row and not self._known.has_surplus:
                self._pass(stop)
            else:
                follows = self._step()

    def _pass(self, stop: int) -> None:
        """Over reports that are told already."""
        known = self._known
        known.last = last = self._reports.reading(stop - 1)
        known.settled = True
        known.seen = max(known.seen, last.total_in, last.total_out)
        self._row = stop

    def _step(self) -> bool:
        row, deltas, known = self._row, self._deltas, self._known
        known.profile_top = int(self._reports.profile_top[row])
        known.boot = int(self._reports.boot[row])
        found = apply_reading(known, self._reports.reading(row), self._busy)
        deltas.delta_in[row], deltas.delta_out[row] = found.delta_in, found.delta_out
        deltas.quality[row], deltas.accepted[row] = found.quality, found.accepted
        self._row += 1
        return found.accepted

    def _busy(self) -> int:
        """The percentile of all that was accepted before this row."""
        last = self._known.last
        if self._rate is None:
            self._rate = self._states.rates.one(self._sensor)
        deltas, rows = self._deltas, slice(self._told, self._row)
        counted = deltas.accepted[rows]
        events = (deltas.delta_in[rows] + deltas.delta_out[rows])[counted]
        received = self._reports.readings.received[rows][counted]
        self._rate.observe_all(received, events)
        self._told = self._row
        return self._rate.percentile(last.received) if last is not None else 0

    def keep(self) -> None:
        states, sensor, known = self._states, self._sensor, self._known
        held = (states.last, states.suspect, states.former)
        for readings, reading in zip(held, (known.last, known.suspect, known.former), strict=True):
            values = (NO_VALUE,) * 5 if reading is None else reading[:5]
            for name, value in zip(READING_FIELDS, values, strict=True):
                getattr(readings, name)[sensor] = value
        for name in COUNTER_FIELDS:
            getattr(states, name)[sensor] = getattr(known, name)
        states.settled[sensor], states.seen[sensor] = known.settled, known.seen
        states.learned_top[sensor] = known.learned_top


def _known(states: SensorStates, sensor: int) -> CounterState:
    readings = []
    for held in (states.last, states.suspect, states.former):
        in_, out, *times = (int(getattr(held, name)[sensor]) for name in READING_FIELDS)
        clock, utc, received = times
        readings.append(None if in_ == NO_VALUE else CounterReading(in_, out, clock, utc, received))
    last, suspect, former = readings
    known = CounterState(
        *(last, suspect, bool(states.settled[sensor]), int(states.seen[sensor])),
        learned_top=int(states.learned_top[sensor]),
        former=former,
    )
    for name in COUNTER_FIELDS:
        setattr(known, name, int(getattr(states, name)[sensor]))
    return known
