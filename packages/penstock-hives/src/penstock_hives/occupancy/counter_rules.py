"""What one report means after those before it: the rules for cumulative totals, one row at a time.

In this order: a duplicate is dropped, a late one is stored, a start is a restart; one total that
fell from near its top has wrapped; both fell is a restart, unless both were near their tops; one
that fell far from its top is a restart if both are small, else corrupt. *Near* and *small* is `G`:
64 events, or four times what the sensor does in the time since its last report at its busiest.

A step beyond `G`, up or down, is more than the sensor can have counted: the report is set aside,
and what was believed before stays. If the next one goes on from there, both are believed, and the
step is what the rules say of it: a sensor that insists is right, a frame that was scrambled never
says the same twice. So bad totals cost nothing, and good ones at most one report's delay.

Two bounds hold whatever reports say. None adds more than a door can pass in the time since the
report it is compared with: 64 events, and one a second. What would add more is set aside until so
much time has passed. And the time of a report without a date is not known: it may be stale,
whenever it was received. So `G` is 64 events for it, and a fall of its totals is believed only as a
wrap within that, or when the next report confirms it.

Two things are put right later. A late report from before a restart has what the device forgot: it
is compared with the last one before the restart. And a wrap at a point that nobody knew yet is made
good once the point is known; what was too much is taken off the next reports, none below nothing.

This is the reference. `deltas` gives the same answers by the column, and calls this where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

from penstock_hives.occupancy.counter_wraps import (
    ASSUMED_WRAP,
    UNKNOWN_WRAP,
    WrapPoint,
    learn_wrap_point,
    wrap_point_of,
)
from penstock_hives.occupancy.device_clock import HOUR_MICROS, MAX_CLOCK_ERROR
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import NO_CLOCK, NO_VALUE

MIN_REACH: Final = 64
_BUSIEST: Final = 4
#: People come by chance: so many standard deviations above the busiest hours nobody has seen.
_DEVIATIONS: Final = 5
#: Nobody passes a door more often than once a second for long, either way: by the hour.
_A_SECOND: Final = 3600
#: Totals of sixteen bits that are this near to others are so by chance once in sixteen times each.
_COINCIDENCE: Final = 4096

#: The 99th percentile of events per hour, asked for only where it matters.
BusyRate = Callable[[], int]

_RESTART: Final = Quality.RESTART | Quality.LOSS_POSSIBLE
_NOTHING: Final = Quality(0)


def apply_reading(known: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep:
    """Tell what the report adds, and know more."""
    found = _apply_reading(known, new, busy)
    return apply_wrap_corrections(known, found) if found.accepted else found


def _apply_reading(known: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep:
    last = known.last
    if last is None:
        return _first(known, new)
    for earlier in (last, known.suspect):
        if earlier is not None and _same(earlier, new):
            return CounterStep(0, 0, Quality.DUPLICATE, False)
    older = last.utc - MAX_CLOCK_ERROR <= new.utc < last.utc
    if older and new.total_in <= last.total_in and new.total_out <= last.total_out:
        return CounterStep(0, 0, Quality.LATE, False)
    if _belated_start(last, new, busy):
        return CounterStep(0, 0, Quality.LATE, False)
    if older and (forgotten := _before_restart(known, new, busy)) is not None:
        return forgotten
    found = _judge(known, last, new, busy)
    if not older:
        if found is not None:
            return _accept(known, new, found)
        return _doubt(
            known, last, new, busy, Quality.LATE if _stale(last, new) else Quality.CORRUPT
        )
    if found is None or found.quality:
        # Overtaken by a wrap or by a restart.
        return CounterStep(0, 0, Quality.LATE, False)
    # Totals that go on while the clock went back: it was set, if the next report says so, too.
    # Until then the report may be one from before a restart.
    return _doubt(known, last, new, busy, Quality.LATE)


def _first(known: CounterState, new: CounterReading) -> CounterStep:
    _believe(known, new)
    if new.start and max(new.total_in, new.total_out) <= MIN_REACH:
        return CounterStep(new.total_in, new.total_out, Quality.FIRST | Quality.RESTART, True)
    return CounterStep(0, 0, Quality.FIRST, True)


def _stale(last: CounterReading, new: CounterReading) -> bool:
    """A report without a date that says nothing new: most likely an old one."""
    fell = new.total_in <= last.total_in and new.total_out <= last.total_out
    return new.clock == NO_CLOCK and fell


def _same(old: CounterReading, new: CounterReading) -> bool:
    totals = old.total_in == new.total_in and old.total_out == new.total_out
    return totals and old.clock == new.clock


def _belated_start(last: CounterReading, new: CounterReading, busy: BusyRate) -> bool:
    """A report of a start, without a date, when there was one not long ago: most likely of that.

    It counts nothing itself; if the device did start once more, the next report will show it."""
    if new.clock != NO_CLOCK or new.total_in or new.total_out:
        return False
    most = max(last.total_in, last.total_out)
    return 0 < most <= _reach(last, new, busy)


def _before_restart(known: CounterState, new: CounterReading, busy: BusyRate) -> CounterStep | None:
    """A late report that goes on from the last before a restart, of which it was the last word."""
    former = known.former
    if former is None or not former.utc <= new.utc < known.began:
        return None
    reach = _reach(former, new, busy)
    rise_in, rise_out = new.total_in - former.total_in, new.total_out - former.total_out
    if not (0 <= rise_in <= reach and 0 <= rise_out <= reach):
        return None
    known.former = clear_start_flag(new)
    return CounterStep(rise_in, rise_out, Quality.LATE, False)


def _judge(
    known: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate
) -> CounterStep | None:
    """What the rules say of a step within `G`; None of one beyond it."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    started = new.start or last.utc < known.boot <= new.utc
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
    over = _over_the_top(known, last, new, reach, busy)
    if over is not None:
        return over
    return _restarted(new) if small and not undated else None


def _over_the_top(
    known: CounterState, last: CounterReading, new: CounterReading, reach: int, busy: BusyRate
) -> CounterStep | None:
    """The step as a wrap of whichever total fell, if they were and are near enough to it."""
    top = known.top.at
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
    return _wrapped(known, last, new, quality, busy)


def _wrapped(
    known: CounterState, last: CounterReading, new: CounterReading, quality: Quality, busy: BusyRate
) -> CounterStep:
    if not known.top.known:
        _learn(known, last, new, busy)
    top = known.top
    if not top.known:
        quality |= Quality.WRAP_ASSUMED
        known.assumed_in += new.total_in < last.total_in
        known.assumed_out += new.total_out < last.total_out
    modulus = top.at + 1
    delta_in = (new.total_in - last.total_in) % modulus
    delta_out = (new.total_out - last.total_out) % modulus
    return CounterStep(delta_in, delta_out, quality, True)


def _learn(known: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate) -> None:
    elapsed = max(new.received - last.received, new.utc - last.utc, 0)
    usual = max(MIN_REACH, busy()) * elapsed / HOUR_MICROS
    most = usual + _DEVIATIONS * sqrt(usual) + 1
    ways = ((last.total_in, new.total_in), (last.total_out, new.total_out))
    for (old, now), (other_old, other_now) in (ways, ways[::-1]):
        if now < old and other_now >= other_old:
            known.learned_top = learn_wrap_point(known.seen, old, now, other_now - other_old, most)


def _restarted(new: CounterReading) -> CounterStep:
    return CounterStep(new.total_in, new.total_out, _RESTART, True)


def _doubt(
    known: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate, quality: Quality
) -> CounterStep:
    """Believed if the report before said so, too, else set aside."""
    suspect = known.suspect
    if suspect is None or not _goes_on(suspect, new, busy):
        known.suspect = clear_start_flag(new)
        return CounterStep(0, 0, quality, False)
    rise_in = new.total_in - suspect.total_in
    rise_out = new.total_out - suspect.total_out
    if not known.settled and not _follows(last, suspect):
        # Two against the one that came first: that was the bad one, and what it hid is lost.
        quality = Quality.FIRST | Quality.CONFIRMED
        known.seen = 0
        return _accept(known, new, CounterStep(rise_in, rise_out, quality, True))
    far = _resolve(known, last, suspect, busy)
    deltas = far.delta_in + rise_in, far.delta_out + rise_out
    if max(deltas) > MIN_REACH + _passable(last, new):
        known.suspect = clear_start_flag(new)
        return CounterStep(0, 0, quality, False)
    step = CounterStep(*deltas, far.quality | Quality.CONFIRMED, True)
    return _accept(known, new, step, began=suspect.utc)


def _goes_on(suspect: CounterReading, new: CounterReading, busy: BusyRate) -> bool:
    reach = _reach(suspect, new, busy)
    rise_in, rise_out = new.total_in - suspect.total_in, new.total_out - suspect.total_out
    return 0 <= rise_in <= reach and 0 <= rise_out <= reach and new.utc >= suspect.utc


def _follows(first: CounterReading, later: CounterReading) -> bool:
    """Whether a report goes on from the very first of a sensor, of whose pace nothing is known.

    Totals out of the blue lie so little below those of another report by less than one chance in
    two hundred, and frames are rarely scrambled: three reports in a row were good ones."""
    rise_in, rise_out = later.total_in - first.total_in, later.total_out - first.total_out
    hours = max(later.received - first.received, 0) / HOUR_MICROS
    most = min(MIN_REACH + _A_SECOND * hours, _COINCIDENCE)
    return 0 <= rise_in <= most and 0 <= rise_out <= most and later.utc >= first.utc


def _resolve(
    known: CounterState, last: CounterReading, new: CounterReading, busy: BusyRate
) -> CounterStep:
    """A step that is certain to have been made, however great: as little as it can have been."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    if rise_in >= 0 and rise_out >= 0 and not new.start:
        return CounterStep(rise_in, rise_out, _NOTHING, True)
    modulus = known.top.at + 1
    restarted = new.total_in + new.total_out
    if new.start or restarted <= rise_in % modulus + rise_out % modulus:
        return _restarted(new)
    return _wrapped(known, last, new, Quality.WRAP | Quality.AMBIGUOUS, busy)


def _accept(
    known: CounterState, new: CounterReading, found: CounterStep, began: int | None = None
) -> CounterStep:
    known.settled = True
    if found.quality & Quality.RESTART:
        known.former, known.began = known.last, new.utc if began is None else began
    _believe(known, new)
    return found


def _believe(known: CounterState, new: CounterReading) -> None:
    known.last = clear_start_flag(new)
    known.suspect = None
    known.seen = max(known.seen, new.total_in, new.total_out)


def _reach(old: CounterReading, new: CounterReading, busy: BusyRate) -> int:
    """`G`: how far totals can have moved from one report to the other."""
    usual = _BUSIEST * busy() * max(new.received - old.received, 0) // HOUR_MICROS
    return max(MIN_REACH, min(usual, _passable(old, new)))


def _passable(old: CounterReading, new: CounterReading) -> int:
    """How many can pass a door from one receipt to the other."""
    return _A_SECOND * max(new.received - old.received, 0) // HOUR_MICROS


# What is known of a sensor that counts: its last reports, its wrap point, and what it still owes.
#
# The values that the rules (`rules`) compare and change, one sensor at a time; `states` has those
# of many, from one batch to the next.


class CounterReading(NamedTuple):
    """The totals of a report, as the device counts, and its times in microseconds."""

    total_in: int
    total_out: int
    clock: int  #: the device's, as it was sent; equal only for the same report
    utc: int  #: the same in UTC, for order
    received: int
    start: bool = False  #: the report says that the device has started


class CounterStep(NamedTuple):
    delta_in: int
    delta_out: int
    quality: Quality
    accepted: bool  #: the reading is what the next one is compared with


@dataclass(slots=True)
class CounterState:
    """What is known of a sensor before a report."""

    last: CounterReading | None = None  #: the last that was believed
    suspect: CounterReading | None = None  #: one that was not, and may yet be confirmed
    settled: bool = False  #: `last` is not the very first, of which nobody knows if it was good
    seen: int = 0  #: the greatest total that was ever believed
    profile_top: int = UNKNOWN_WRAP  #: by the profile
    learned_top: int = UNKNOWN_WRAP
    boot: int = NO_VALUE  #: when the device last started, by a status of its own
    former: CounterReading | None = None  #: the last that was believed before the last restart
    began: int = NO_VALUE  #: `utc` of the first report since then
    assumed_in: int = 0  #: wraps at a point that was only assumed
    assumed_out: int = 0
    surplus_in: int = 0  #: counted too many; too few, if below 0
    surplus_out: int = 0

    @property
    def has_surplus(self) -> bool:
        return bool(self.surplus_in or self.surplus_out)

    @property
    def top(self) -> WrapPoint:
        return wrap_point_of(self.profile_top, self.learned_top, self.seen)


def apply_wrap_corrections(known: CounterState, found: CounterStep) -> CounterStep:
    """What was wrongly assumed of wraps, once their point is known. Nobody counts backwards."""
    if (known.assumed_in or known.assumed_out) and known.top.known:
        excess = ASSUMED_WRAP - known.top.at
        known.surplus_in += excess * known.assumed_in
        known.surplus_out += excess * known.assumed_out
        known.assumed_in = known.assumed_out = 0
    if not known.has_surplus:
        return found
    paid_in, paid_out = (
        min(found.delta_in, known.surplus_in),
        min(found.delta_out, known.surplus_out),
    )
    known.surplus_in -= paid_in
    known.surplus_out -= paid_out
    return found._replace(delta_in=found.delta_in - paid_in, delta_out=found.delta_out - paid_out)


def clear_start_flag(reading: CounterReading) -> CounterReading:
    """Without the word that it was a start, which is nothing that lasts."""
    return reading._replace(start=False) if reading.start else reading
