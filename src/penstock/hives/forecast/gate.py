"""Whether a model is good enough to be published in place of the venues' own weeks.

It has to be no worse on most venues, and clearly better on all together. A model that is a little
better on the whole by being much better on a few large venues fails; so does one that is a hair
better everywhere: the baseline can be explained to people in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.hives.forecast.measures import Tally

#: So many of the venues may not be worse off.
SHARE: Final = 0.6
#: And the pooled WAPE has to be so much smaller.
GAIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    accepted: bool
    #: In words, for the log and for whoever asks why.
    reason: str
    wape: float = float("nan")
    baseline_wape: float = float("nan")
    share_better: float = float("nan")


def judge(model: Mapping[str, Tally], baseline: Mapping[str, Tally]) -> Verdict:
    """By venue, what a backtest counted of each. Venues nobody came to have no say."""
    venues = [each for each in baseline if baseline[each].came > 0 and model[each].came > 0]
    if not venues:
        return Verdict(False, "no venue has a past to be judged by")
    better = sum(model[each].wape <= baseline[each].wape for each in venues)
    share = better / len(venues)
    wape = sum((model[each] for each in venues), Tally()).wape
    usual = sum((baseline[each] for each in venues), Tally()).wape
    gain = 1 - wape / usual if usual > 0 else 0.0
    told = (
        f"no worse on {better} of {len(venues)} venues (needs {SHARE:.0%}), "
        f"WAPE {wape:.3f} against {usual:.3f}: {gain:+.1%} (needs {GAIN:+.0%})"
    )
    return Verdict(share >= SHARE and gain >= GAIN, told, wape, usual, share)
