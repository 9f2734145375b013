"""Accuracy of forecasts, peak windows, and the gate a model has to pass.

* WAPE: absolute errors as a share of actual counts, over all hours; for holidays separately.
* Peak: how often the busiest hour was forecast within one hour.
* Top 3: how many of the three busiest hours were among the three forecast.
* Window: how often the busiest hour was in the forecast peak window.
* Coverage: share of hours at or below p90; 0.9 is right.

Peaks are scored on days whose 24 hours are known and not all equal. A model is published if it is
no worse than the baseline at 60 % of venues and its pooled WAPE is at least 5 % lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Floats
from penstock_hives.forecast.grid import HOURS


@dataclass(frozen=True, slots=True)
class AccuracyTally:
    """Sums; those of venues add up to the total."""

    error: float = 0.0  #: sum of absolute errors
    actual: float = 0.0
    holiday_error: float = 0.0
    holiday_actual: float = 0.0
    days: float = 0.0
    peaks: float = 0.0
    tops: float = 0.0
    windows: float = 0.0
    hours: float = 0.0
    covered: float = 0.0

    def __add__(self, other: AccuracyTally) -> AccuracyTally:
        names = [each.name for each in fields(self)]
        return AccuracyTally(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def wape(self) -> float:
        return _share(self.error, self.actual)

    @property
    def holiday_wape(self) -> float:
        return _share(self.holiday_error, self.holiday_actual)

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
        """NaN for methods without p90."""
        return _share(self.covered, self.hours)


def tally_accuracy(
    actual: Floats, p50: Floats, off: Flags, p90: Floats | None = None
) -> AccuracyTally:
    """Of days × hours of one venue; hours that are unknown on either side do not count."""
    known = np.isfinite(actual) & np.isfinite(p50)
    error = np.where(known, np.abs(actual - p50), 0.0).sum(axis=1)
    total = np.where(known, actual, 0.0).sum(axis=1)
    whole = known.all(axis=1)
    whole &= np.where(known, actual, 0.0).max(axis=1, initial=0.0) > total / HOURS
    seen, forecast = actual[whole], p50[whole]
    peak = seen.argmax(axis=1)
    highest = [np.argsort(-each, axis=1, kind="stable")[:, :3] for each in (seen, forecast)]
    windows = [peak_window(each) for each in forecast]
    inside = [
        each is not None and each[0] <= at < each[1] for each, at in zip(windows, peak, strict=True)
    ]
    under = known & (actual <= p90) if p90 is not None else np.zeros_like(known)
    return AccuracyTally(
        error=float(error.sum()),
        actual=float(total.sum()),
        holiday_error=float(error[off].sum()),
        holiday_actual=float(total[off].sum()),
        days=float(whole.sum()),
        peaks=float((np.abs(peak - forecast.argmax(axis=1)) <= 1).sum()) if len(forecast) else 0.0,
        tops=float((highest[0][:, :, None] == highest[1][:, None, :]).sum()),
        windows=float(sum(inside)),
        hours=float(known.sum()) if p90 is not None else 0.0,
        covered=float(under.sum()),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


#: Hours with this share of the busiest belong to the window.
_NEAR: Final = 0.9
_SHORTEST: Final = 3
_LONGEST: Final = 5


def peak_window(hours: Floats) -> tuple[int, int] | None:
    """First index and end; None if nobody is expected."""
    known = np.nan_to_num(hours, nan=-1.0)
    top = int(known.argmax()) if known.size else 0
    if not known.size or known[top] <= 0:
        return None
    first, last = top, top
    while last - first + 1 < min(_LONGEST, known.size):
        before = known[first - 1] if first > 0 else -1.0
        after = known[last + 1] if last + 1 < known.size else -1.0
        near = max(before, after) >= _NEAR * known[top]
        if not near and last - first + 1 >= _SHORTEST:
            break
        if before > after:
            first -= 1
        else:
            last += 1
    return first, last + 1


#: The least share of venues that are not worse.
MIN_SHARE_BETTER: Final = 0.6
#: The least reduction of the pooled WAPE.
MIN_GAIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    accepted: bool
    reason: str
    wape: float = float("nan")
    baseline_wape: float = float("nan")
    share_better: float = float("nan")


def judge_model(
    model: Mapping[str, AccuracyTally], baseline: Mapping[str, AccuracyTally]
) -> ModelVerdict:
    """Tallies by venue. Venues without visitors do not count."""
    venues = [each for each in baseline if baseline[each].actual > 0 and model[each].actual > 0]
    if not venues:
        return ModelVerdict(False, "no venue has enough history")
    better = sum(model[each].wape <= baseline[each].wape for each in venues)
    share = better / len(venues)
    wape = sum((model[each] for each in venues), AccuracyTally()).wape
    usual = sum((baseline[each] for each in venues), AccuracyTally()).wape
    gain = 1 - wape / usual if usual > 0 else 0.0
    reason = (
        f"no worse on {better} of {len(venues)} venues (needs {MIN_SHARE_BETTER:.0%}), "
        f"WAPE {wape:.3f} against {usual:.3f}: {gain:+.1%} (needs {MIN_GAIN:+.0%})"
    )
    return ModelVerdict(share >= MIN_SHARE_BETTER and gain >= MIN_GAIN, reason, wape, usual, share)
