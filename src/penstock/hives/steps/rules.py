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
from math import sqrt
from typing import Final

from penstock.hives.steps.clocks import FAR, HOUR
from penstock.hives.steps.known import Known, Reading, Step, put_right, replace_start
from penstock.hives.steps.quality import Quality
from penstock.hives.steps.states import NO_CLOCK
from penstock.hives.steps.wraps import learn

LEAST_G: Final = 64
_BUSIEST: Final = 4
#: People come by chance: so many standard deviations above the busiest hours nobody has seen.
_DEVIATIONS: Final = 5
#: Nobody passes a door more often than once a second for long, either way: by the hour.
_A_SECOND: Final = 3600
#: Totals of sixteen bits that are this near to others are so by chance once in sixteen times each.
_COINCIDENCE: Final = 4096

#: The 99th percentile of events per hour, asked for only where it matters.
Busy = Callable[[], int]

_RESTART: Final = Quality.RESTART | Quality.LOSS_POSSIBLE
_NOTHING: Final = Quality(0)


def step(known: Known, new: Reading, busy: Busy) -> Step:
    """Tell what the report adds, and know more."""
    found = _step(known, new, busy)
    return put_right(known, found) if found.accepted else found


def _step(known: Known, new: Reading, busy: Busy) -> Step:
    last = known.last
    if last is None:
        return _first(known, new)
    for earlier in (last, known.suspect):
        if earlier is not None and _same(earlier, new):
            return Step(0, 0, Quality.DUPLICATE, False)
    older = last.utc - FAR <= new.utc < last.utc
    if older and new.total_in <= last.total_in and new.total_out <= last.total_out:
        return Step(0, 0, Quality.LATE, False)
    if _belated_start(last, new, busy):
        return Step(0, 0, Quality.LATE, False)
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
        return Step(0, 0, Quality.LATE, False)
    # Totals that go on while the clock went back: it was set, if the next report says so, too.
    # Until then the report may be one from before a restart.
    return _doubt(known, last, new, busy, Quality.LATE)


def _first(known: Known, new: Reading) -> Step:
    _believe(known, new)
    if new.start and max(new.total_in, new.total_out) <= LEAST_G:
        return Step(new.total_in, new.total_out, Quality.FIRST | Quality.RESTART, True)
    return Step(0, 0, Quality.FIRST, True)


def _stale(last: Reading, new: Reading) -> bool:
    """A report without a date that says nothing new: most likely an old one."""
    fell = new.total_in <= last.total_in and new.total_out <= last.total_out
    return new.clock == NO_CLOCK and fell


def _same(old: Reading, new: Reading) -> bool:
    totals = old.total_in == new.total_in and old.total_out == new.total_out
    return totals and old.clock == new.clock


def _belated_start(last: Reading, new: Reading, busy: Busy) -> bool:
    """A report of a start, without a date, when there was one not long ago: most likely of that.

    It counts nothing itself; if the device did start once more, the next report will show it."""
    if new.clock != NO_CLOCK or new.total_in or new.total_out:
        return False
    most = max(last.total_in, last.total_out)
    return 0 < most <= _reach(last, new, busy)


def _before_restart(known: Known, new: Reading, busy: Busy) -> Step | None:
    """A late report that goes on from the last before a restart, of which it was the last word."""
    former = known.former
    if former is None or not former.utc <= new.utc < known.began:
        return None
    reach = _reach(former, new, busy)
    rise_in, rise_out = new.total_in - former.total_in, new.total_out - former.total_out
    if not (0 <= rise_in <= reach and 0 <= rise_out <= reach):
        return None
    known.former = replace_start(new)
    return Step(rise_in, rise_out, Quality.LATE, False)


def _judge(known: Known, last: Reading, new: Reading, busy: Busy) -> Step | None:
    """What the rules say of a step within `G`; None of one beyond it."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    started = new.start or last.utc < known.boot <= new.utc
    if not started and 0 <= rise_in <= LEAST_G and 0 <= rise_out <= LEAST_G:
        return Step(rise_in, rise_out, _NOTHING, True)
    undated = new.clock == NO_CLOCK
    reach = LEAST_G if undated else _reach(last, new, busy)
    small = new.total_in <= reach and new.total_out <= reach
    if started:
        return _restarted(new) if small else None
    if rise_in >= 0 and rise_out >= 0:
        near = rise_in <= reach and rise_out <= reach
        return Step(rise_in, rise_out, _NOTHING, True) if near else None
    over = _over_the_top(known, last, new, reach, busy)
    if over is not None:
        return over
    return _restarted(new) if small and not undated else None


def _over_the_top(known: Known, last: Reading, new: Reading, reach: int, busy: Busy) -> Step | None:
    """The step as a wrap of whichever total fell, if they were and are near enough to it."""
    top = known.top.at
    most = LEAST_G + _passable(last, new)
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


def _wrapped(known: Known, last: Reading, new: Reading, quality: Quality, busy: Busy) -> Step:
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
    return Step(delta_in, delta_out, quality, True)


def _learn(known: Known, last: Reading, new: Reading, busy: Busy) -> None:
    elapsed = max(new.received - last.received, new.utc - last.utc, 0)
    usual = max(LEAST_G, busy()) * elapsed / HOUR
    most = usual + _DEVIATIONS * sqrt(usual) + 1
    ways = ((last.total_in, new.total_in), (last.total_out, new.total_out))
    for (old, now), (other_old, other_now) in (ways, ways[::-1]):
        if now < old and other_now >= other_old:
            known.learned_top = learn(known.seen, old, now, other_now - other_old, most)


def _restarted(new: Reading) -> Step:
    return Step(new.total_in, new.total_out, _RESTART, True)


def _doubt(known: Known, last: Reading, new: Reading, busy: Busy, quality: Quality) -> Step:
    """Believed if the report before said so, too, else set aside."""
    suspect = known.suspect
    if suspect is None or not _goes_on(suspect, new, busy):
        known.suspect = replace_start(new)
        return Step(0, 0, quality, False)
    rise_in = new.total_in - suspect.total_in
    rise_out = new.total_out - suspect.total_out
    if not known.settled and not _follows(last, suspect):
        # Two against the one that came first: that was the bad one, and what it hid is lost.
        quality = Quality.FIRST | Quality.CONFIRMED
        known.seen = 0
        return _accept(known, new, Step(rise_in, rise_out, quality, True))
    far = _resolve(known, last, suspect, busy)
    deltas = far.delta_in + rise_in, far.delta_out + rise_out
    if max(deltas) > LEAST_G + _passable(last, new):
        known.suspect = replace_start(new)
        return Step(0, 0, quality, False)
    step = Step(*deltas, far.quality | Quality.CONFIRMED, True)
    return _accept(known, new, step, began=suspect.utc)


def _goes_on(suspect: Reading, new: Reading, busy: Busy) -> bool:
    reach = _reach(suspect, new, busy)
    rise_in, rise_out = new.total_in - suspect.total_in, new.total_out - suspect.total_out
    return 0 <= rise_in <= reach and 0 <= rise_out <= reach and new.utc >= suspect.utc


def _follows(first: Reading, later: Reading) -> bool:
    """Whether a report goes on from the very first of a sensor, of whose pace nothing is known.

    Totals out of the blue lie so little below those of another report by less than one chance in
    two hundred, and frames are rarely scrambled: three reports in a row were good ones."""
    rise_in, rise_out = later.total_in - first.total_in, later.total_out - first.total_out
    hours = max(later.received - first.received, 0) / HOUR
    most = min(LEAST_G + _A_SECOND * hours, _COINCIDENCE)
    return 0 <= rise_in <= most and 0 <= rise_out <= most and later.utc >= first.utc


def _resolve(known: Known, last: Reading, new: Reading, busy: Busy) -> Step:
    """A step that is certain to have been made, however great: as little as it can have been."""
    rise_in, rise_out = new.total_in - last.total_in, new.total_out - last.total_out
    if rise_in >= 0 and rise_out >= 0 and not new.start:
        return Step(rise_in, rise_out, _NOTHING, True)
    modulus = known.top.at + 1
    restarted = new.total_in + new.total_out
    if new.start or restarted <= rise_in % modulus + rise_out % modulus:
        return _restarted(new)
    return _wrapped(known, last, new, Quality.WRAP | Quality.AMBIGUOUS, busy)


def _accept(known: Known, new: Reading, found: Step, began: int | None = None) -> Step:
    known.settled = True
    if found.quality & Quality.RESTART:
        known.former, known.began = known.last, new.utc if began is None else began
    _believe(known, new)
    return found


def _believe(known: Known, new: Reading) -> None:
    known.last = replace_start(new)
    known.suspect = None
    known.seen = max(known.seen, new.total_in, new.total_out)


def _reach(old: Reading, new: Reading, busy: Busy) -> int:
    """`G`: how far totals can have moved from one report to the other."""
    usual = _BUSIEST * busy() * max(new.received - old.received, 0) // HOUR
    return max(LEAST_G, min(usual, _passable(old, new)))


def _passable(old: Reading, new: Reading) -> int:
    """How many can pass a door from one receipt to the other."""
    return _A_SECOND * max(new.received - old.received, 0) // HOUR
