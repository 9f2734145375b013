"""How good forecasts were: by all hours, by holidays, and by the hours that matter most.

* WAPE: misses as a share of what came, over all hours; holidays' alone beside it.
* Peak: how often the busiest hour was forecast within an hour of when it was.
* Top 3: how many of the three busiest hours were among the three forecast.
* Window: how often the busiest hour lay in the peak window.
* Covered: how many hours stayed under p90; 0.9 is right.

Peaks are looked for in days whose 24 hours are all known and not all alike.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from penstock.hives.forecast.grid import HOURS, Flags, Floats
from penstock.hives.forecast.peaks import window


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums, so that those of venues add up to those of all."""

    missed: float = 0.0
    came: float = 0.0
    holiday_missed: float = 0.0
    holiday_came: float = 0.0
    days: float = 0.0
    peaks: float = 0.0
    tops: float = 0.0
    windows: float = 0.0
    hours: float = 0.0
    covered: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        names = [each.name for each in fields(self)]
        return Tally(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def wape(self) -> float:
        return _share(self.missed, self.came)

    @property
    def holiday_wape(self) -> float:
        return _share(self.holiday_missed, self.holiday_came)

    @property
    def peak(self) -> float:
        return _share(self.peaks, self.days)

    @property
    def top3(self) -> float:
        return _share(self.tops, 3 * self.days)

    @property
    def in_window(self) -> float:
        return _share(self.windows, self.days)

    @property
    def coverage(self) -> float:
        """Not a number for methods without a p90."""
        return _share(self.covered, self.hours)


def tally(actual: Floats, p50: Floats, off: Flags, p90: Floats | None = None) -> Tally:
    """Of days × hours of one venue; hours unknown on either side do not count."""
    known = np.isfinite(actual) & np.isfinite(p50)
    missed = np.where(known, np.abs(actual - p50), 0.0).sum(axis=1)
    came = np.where(known, actual, 0.0).sum(axis=1)
    whole = known.all(axis=1)
    whole &= np.where(known, actual, 0.0).max(axis=1, initial=0.0) > came / HOURS
    seen, said = actual[whole], p50[whole]
    peak = seen.argmax(axis=1)
    highest = [np.argsort(-each, axis=1, kind="stable")[:, :3] for each in (seen, said)]
    windows = [window(each) for each in said]
    inside = [
        each is not None and each[0] <= at < each[1] for each, at in zip(windows, peak, strict=True)
    ]
    under = known & (actual <= p90) if p90 is not None else np.zeros_like(known)
    return Tally(
        missed=float(missed.sum()),
        came=float(came.sum()),
        holiday_missed=float(missed[off].sum()),
        holiday_came=float(came[off].sum()),
        days=float(whole.sum()),
        peaks=float((np.abs(peak - said.argmax(axis=1)) <= 1).sum()) if len(said) else 0.0,
        tops=float((highest[0][:, :, None] == highest[1][:, None, :]).sum()),
        windows=float(sum(inside)),
        hours=float(known.sum()) if p90 is not None else 0.0,
        covered=float(under.sum()),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
