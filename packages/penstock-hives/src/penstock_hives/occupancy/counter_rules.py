"""Rules for cumulative totals: what one report adds to the reports before it, one row at a time.

Rules in order. `G` is how far totals can move between two reports: 64 events, or four times the
sensor's busiest rate for the time between, at most one event a second.

| condition | result | quality |
|---|---|---|
| no report before | reference; totals of a START count | FIRST |
| same totals and clock as the last or the suspect report | dropped | DUPLICATE |
| older than the last report, totals not greater | stored | LATE |
| START without a date shortly after a start | stored | LATE |
| older, continues the last report before a restart | adds the rise | LATE |
| the device started, totals within `G` | adds the totals | RESTART |
| totals rose within `G` | adds the rise | |
| totals fell, and were and are within `G` of the wrap point | adds the rise modulo | WRAP |
| totals fell, both within `G` of 0 | adds the totals | RESTART |
| anything else | suspect: adds nothing | CORRUPT |
| continues a suspect report | both reports count | CONFIRMED |

A damaged frame never repeats its totals, a correct sensor does: a bad report costs nothing, and a
good one is delayed by one report at most.

No report adds more than 64 events plus one a second since its reference; otherwise it stays
suspect. A report without a date may be old whenever it was received: `G` is 64 for it, and falling
totals are accepted only as a wrap within `G` or when the next report confirms them.

Two things are corrected later. A late report from before a restart adds what the device did not
report. A wrap at an assumed point is corrected once the point is known: events counted too many are
subtracted from later reports, never below zero; missing events are added to them, within the bound.

Totals of reports v1 wrap at 65503, 65523 or 65535. If the profile does not say where, a greater
total excludes a point. Sensors report every few events: a total that wraps within few events of its
last report would have been seen above the lower points, so the lowest point that is not excluded is
learned. A wrap during an outage proves nothing: the default is assumed until a later wrap shows it.

This is the reference implementation. `deltas` gives the same results by column and calls this
module for reports that do not simply continue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

from penstock_hives.occupancy.device_clock import HOUR_MICROS, MAX_CLOCK_ERROR
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import NO_CLOCK, NO_VALUE
from penstock_hives.sensors.protocol.frame import DEFAULT_WRAP_AT, WRAP_POINTS
from penstock_hives.sensors.protocol.messages import SensorConfiguration

#: Totals of v2 have 32 bits.
V2_MAX_TOTAL: Final = (1 << 32) - 1
V1_MAX_TOTAL: Final = max(WRAP_POINTS)
UNKNOWN_WRAP: Final = NO_VALUE
#: Assumed while the wrap point is not known.
ASSUMED_WRAP: Final = DEFAULT_WRAP_AT
#: Events per report by default.
_REPORT: Final = SensorConfiguration().event_threshold
_RISING: Final = tuple(sorted(WRAP_POINTS))


@dataclass(frozen=True, slots=True)
class WrapPoint:
    """The greatest value of a total, and whether it is known or assumed."""

    at: int
    is_known: bool


def wrap_point_of(profile: int, learned: int, seen: int) -> WrapPoint:
    """By the profile unless the data exclude it, else as learned, else the default.

    `seen` is the greatest accepted total of the sensor."""
    for point in (profile, learned):
        if point != UNKNOWN_WRAP and point >= seen:
            return WrapPoint(point, True)
    if seen > V1_MAX_TOTAL:
        return WrapPoint(V2_MAX_TOTAL, True)
    if seen > ASSUMED_WRAP:
        return WrapPoint(V1_MAX_TOTAL, True)
    return WrapPoint(ASSUMED_WRAP, False)


def learn_wrap_point(seen: int, old: int, new: int, other: int, most: float) -> int:
    """The point that a wrap from `old` to `new` shows, while the other total grew by `other`.

    Up to one report's events show it: no report was lost between. Up to two reports' events show it
    if every other point would need more than `most` events, the most the sensor can have counted
    meanwhile: after an outage, a small remainder proves nothing."""
    lowest, *others = (point for point in _RISING if point >= max(seen, old))
    passed = new + 1 + other - old
    if lowest + passed <= _REPORT:
        return lowest
    two = lowest + passed <= 2 * _REPORT and all(point + passed > most for point in others)
    return lowest if two else UNKNOWN_WRAP


MIN_REACH: Final = 64
_BUSIEST: Final = 4
#: Standard deviations above the busiest hours that are never seen.
_DEVIATIONS: Final = 5
#: The most events that pass a door in an hour, in either direction: one a second.
_MAX_PER_HOUR: Final = 3600
#: Two random totals of sixteen bits are this close with a chance of one in sixteen.
_COINCIDENCE: Final = 4096

#: The 99th percentile of events per hour; computed only when it is needed.
BusyRate = Callable[[], int]

_RESTART: Final = Quality.RESTART | Quality.LOSS_POSSIBLE
_NOTHING: Final = Quality(0)


class CounterReading(NamedTuple):
    """The totals of a report as the device counts, and its times in microseconds."""

    total_in: int
    total_out: int
    clock: int  #: the device's, as sent; equal only for copies of a report
    utc: int  #: the same in UTC, for the order
    received: int
    start: bool = False  #: the report says that the device has started


class CounterStep(NamedTuple):
    delta_in: int
    delta_out: int
    quality: Quality
    accepted: bool  #: the reading is the reference of the next one


@dataclass(slots=True)
class CounterState:
    """The state of a sensor before a report."""

    last: CounterReading | None = None  #: the last accepted
    suspect: CounterReading | None = None  #: not accepted, may be confirmed by the next
    settled: bool = False  #: `last` was confirmed by a later report
    seen: int = 0  #: the greatest accepted total
    profile_top: int = UNKNOWN_WRAP
    learned_top: int = UNKNOWN_WRAP
    boot: int = NO_VALUE  #: the last start of the device by its statuses
    former: CounterReading | None = None  #: the last accepted before the last restart
    began: int = NO_VALUE  #: `utc` of the first report after that restart
    assumed_in: int = 0  #: wraps at an assumed point
    assumed_out: int = 0
    surplus_in: int = 0  #: events counted too many; too few if negative
    surplus_out: int = 0

    @property
    def has_surplus(self) -> bool:
        return bool(self.surplus_in or self.surplus_out)

    @property
    def top(self) -> WrapPoint:
        return wrap_point_of(self.profile_top, self.learned_top, self.seen)


def apply_reading(state: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep:
    """The delta of a report; updates the state."""
    last = state.last
    step = _apply_reading(state, new, busy)
    if not step.accepted:
        return step
    most = MIN_REACH + (0 if last is None else _passable(last, new))
    return _apply_wrap_corrections(state, step, most)


def _apply_reading(state: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep:
    last = state.last
    if last is None:
        return _first(state, new)
    for earlier in (last, state.suspect):
        if earlier is not None and _same(earlier, new):
            return CounterStep(0, 0, Quality.DUPLICATE, False)
    older = last.utc - MAX_CLOCK_ERROR <= new.utc < last.utc
    if older and new.total_in <= last.total_in and new.total_out <= last.total_out:
        return CounterStep(0, 0, Quality.LATE, False)
    if _belated_start(last, new, busy):
        return CounterStep(0, 0, Quality.LATE, False)
    if older and (forgotten := _before_restart(state, new, busy)) is not None:
        return forgotten
    step = _compare(state, last, new, busy)
    if not older:
        if step is not None:
            return _accept(state, new, step)
        stale = new.clock == NO_CLOCK and (
            new.total_in <= last.total_in and new.total_out <= last.total_out
        )
        return _suspect(state, last, new, busy, Quality.LATE if stale else Quality.CORRUPT)
    if step is None or step.quality:
        # Older than a wrap or a restart.
        return CounterStep(0, 0, Quality.LATE, False)
    # Totals rose while the clock went back: the clock was set, if the next report confirms it.
    # Until then the report may be one from before a restart.
    return _suspect(state, last, new, busy, Quality.LATE)


def _first(state: CounterState, new: CounterReading) -> CounterStep:
    _set_reference(state, new)
    if new.start and max(new.total_in, new.total_out) <= MIN_REACH:
        return CounterStep(new.total_in, new.total_out, Quality.FIRST | Quality.RESTART, True)
    return CounterStep(0, 0, Quality.FIRST, True)


def _same(old: CounterReading, new: CounterReading) -> bool:
    totals = old.total_in == new.total_in and old.total_out == new.total_out
    return totals and old.clock == new.clock


def _belated_start(last: CounterReading, new: CounterReading, busy: BusyRate) -> bool:
    """A START without a date shortly after a start is most likely a late copy of that report.

    It adds nothing; if the device did start again, the next report shows it."""
    if new.clock != NO_CLOCK or new.total_in or new.total_out:
        return False
    most = max(last.total_in, last.total_out)
    return 0 < most <= _reach(last, new, busy)


def _before_restart(state: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep | None:
    """A late report that continues the last one before a restart."""
    former = state.former
    if former is None or not former.utc <= new.utc < state.began:
        return None
    reach = _reach(former, new, busy)
    rise_in, rise_out = new.total_in - former.total_in, new.total_out - former.total_out
    if not (0 <= rise_in <= reach and 0 <= rise_out <= reach):
        return None
    state.former = _without_start(new)
    return CounterStep(rise_in, rise_out, Quality.LATE, False)


def _compare(
    state: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate
) -> CounterStep | None:
    """The step to a report within `G`; None beyond it."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    started = new.start or last.utc < state.boot <= new.utc
    if not started and 0 <= rise_in <= MIN_REACH and 0 <= rise_out <= MIN_REACH:
        return CounterStep(rise_in, rise_out, _NOTHING, True)
    undated = new.clock == NO_CLOCK
    reach = MIN_REACH if undated else _reach(last, new, busy)
    small = new.total_in <= reach and new.total_out <= reach
    if started:
        return _restarted(new) if small else None
    if rise_in >= 0 and rise_out >= 0:
        near = rise_in <= reach and rise_out <= reach
        return CounterStep(rise_in, rise_out, _NOTHING, True) if near else None
    wrapped = _try_wrap(state, last, new, reach, busy)
    if wrapped is not None:
        return wrapped
    return _restarted(new) if small and not undated else None


def _try_wrap(
    state: CounterState, last: CounterReading, new: CounterReading, reach: int, busy: BusyRate
) -> CounterStep | None:
    """The step as a wrap of the totals that fell, if they are close enough to the wrap point."""
    top = state.top.at
    most = MIN_REACH + _passable(last, new)
    quality = Quality.WRAP
    for old, now in ((last.total_in, new.total_in), (last.total_out, new.total_out)):
        fell = now < old
        if fell and (top - old > reach or now > reach or top - old + now + 1 > most):
            return None
        if not fell and now - old > reach:
            return None
    if new.total_in < last.total_in and new.total_out < last.total_out:
        quality |= Quality.AMBIGUOUS
    return _wrapped(state, last, new, quality, busy)


def _wrapped(
    state: CounterState, last: CounterReading, new: CounterReading, quality: Quality, busy: BusyRate
) -> CounterStep:
    if not state.top.is_known:
        _learn(state, last, new, busy)
    top = state.top
    if not top.is_known:
        quality |= Quality.WRAP_ASSUMED
        state.assumed_in += new.total_in < last.total_in
        state.assumed_out += new.total_out < last.total_out
    modulus = top.at + 1
    delta_in = (new.total_in - last.total_in) % modulus
    delta_out = (new.total_out - last.total_out) % modulus
    return CounterStep(delta_in, delta_out, quality, True)


def _learn(state: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate) -> None:
    elapsed = max(new.received - last.received, new.utc - last.utc, 0)
    usual = max(MIN_REACH, busy()) * elapsed / HOUR_MICROS
    most = usual + _DEVIATIONS * sqrt(usual) + 1
    ways = ((last.total_in, new.total_in), (last.total_out, new.total_out))
    for (old, now), (other_old, other_now) in (ways, ways[::-1]):
        if now < old and other_now >= other_old:
            state.learned_top = learn_wrap_point(state.seen, old, now, other_now - other_old, most)


def _restarted(new: CounterReading) -> CounterStep:
    return CounterStep(new.total_in, new.total_out, _RESTART, True)


def _suspect(
    state: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate, quality: Quality
) -> CounterStep:
    """Accepted if it continues the suspect report before it, else the new suspect."""
    suspect = state.suspect
    if suspect is None or not _continues(suspect, new, busy):
        state.suspect = _without_start(new)
        return CounterStep(0, 0, quality, False)
    rise_in = new.total_in - suspect.total_in
    rise_out = new.total_out - suspect.total_out
    if not state.settled and not _follows(last, suspect):
        # Two reports against the first one: the first was bad, and events before are lost.
        quality = Quality.FIRST | Quality.CONFIRMED
        state.seen = 0
        return _accept(state, new, CounterStep(rise_in, rise_out, quality, True))
    far = _resolve(state, last, suspect, busy)
    deltas = far.delta_in + rise_in, far.delta_out + rise_out
    if max(deltas) > MIN_REACH + _passable(last, new):
        state.suspect = _without_start(new)
        return CounterStep(0, 0, quality, False)
    step = CounterStep(*deltas, far.quality | Quality.CONFIRMED, True)
    return _accept(state, new, step, began=suspect.utc)


def _continues(suspect: CounterReading, new: CounterReading, busy: BusyRate) -> bool:
    reach = _reach(suspect, new, busy)
    rise_in, rise_out = new.total_in - suspect.total_in, new.total_out - suspect.total_out
    return 0 <= rise_in <= reach and 0 <= rise_out <= reach and new.utc >= suspect.utc


def _follows(first: CounterReading, later: CounterReading) -> bool:
    """Whether a report continues the first report of a sensor, whose rate is not known yet.

    Random totals are this close by less than one chance in two hundred, and damaged frames are
    rare: three reports in a row were good."""
    rise_in, rise_out = later.total_in - first.total_in, later.total_out - first.total_out
    hours = max(later.received - first.received, 0) / HOUR_MICROS
    most = min(MIN_REACH + _MAX_PER_HOUR * hours, _COINCIDENCE)
    return 0 <= rise_in <= most and 0 <= rise_out <= most and later.utc >= first.utc


def _resolve(
    state: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate
) -> CounterStep:
    """The smallest step that explains a confirmed change of totals."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    if rise_in >= 0 and rise_out >= 0 and not new.start:
        return CounterStep(rise_in, rise_out, _NOTHING, True)
    modulus = state.top.at + 1
    restarted = new.total_in + new.total_out
    if new.start or restarted <= rise_in % modulus + rise_out % modulus:
        return _restarted(new)
    return _wrapped(state, last, new, Quality.WRAP | Quality.AMBIGUOUS, busy)


def _accept(
    state: CounterState, new: CounterReading, step: CounterStep, began: int | None = None
) -> CounterStep:
    state.settled = True
    if step.quality & Quality.RESTART:
        state.former, state.began = state.last, new.utc if began is None else began
    _set_reference(state, new)
    return step


def _set_reference(state: CounterState, new: CounterReading) -> None:
    state.last = _without_start(new)
    state.suspect = None
    state.seen = max(state.seen, new.total_in, new.total_out)


def _reach(old: CounterReading, new: CounterReading, busy: BusyRate) -> int:
    """`G`: how far totals can move from one report to the other."""
    usual = _BUSIEST * busy() * max(new.received - old.received, 0) // HOUR_MICROS
    return max(MIN_REACH, min(usual, _passable(old, new)))


def _passable(old: CounterReading, new: CounterReading) -> int:
    """The most events that can pass a door between two receipts."""
    return _MAX_PER_HOUR * max(new.received - old.received, 0) // HOUR_MICROS


def _apply_wrap_corrections(state: CounterState, step: CounterStep, most: int) -> CounterStep:
    """Correct wraps at an assumed point once the point is known. A delta stays above zero and, if
    it was, within `most`; the rest is corrected by later reports."""
    if (state.assumed_in or state.assumed_out) and state.top.is_known:
        excess = ASSUMED_WRAP - state.top.at
        state.surplus_in += excess * state.assumed_in
        state.surplus_out += excess * state.assumed_out
        state.assumed_in = state.assumed_out = 0
    if not state.has_surplus:
        return step
    paid_in = _corrected(step.delta_in, state.surplus_in, most)
    paid_out = _corrected(step.delta_out, state.surplus_out, most)
    state.surplus_in -= paid_in
    state.surplus_out -= paid_out
    return step._replace(delta_in=step.delta_in - paid_in, delta_out=step.delta_out - paid_out)


def _corrected(delta: int, surplus: int, most: int) -> int:
    """How much of a surplus a delta takes off; negative of what it adds."""
    return min(delta, surplus) if surplus > 0 else max(surplus, min(0, delta - most))


def _without_start(reading: CounterReading) -> CounterReading:
    return reading._replace(start=False) if reading.start else reading
