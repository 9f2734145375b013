"""How old and how thin a sample is, if it is of this origin; and what it was when it was fresh.

Ratios of two indicators do not change by dilution and change with age at a known rate, so all pairs
together, against all reference samples of the origin, give the age by least squares; then what all
indicators lack gives the dilution. Both are sums that can be made once for the reference and used
for any number of samples at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.matrix import Floats

#: No sample is younger than fresh; and later than this little is left that could tell its age.
#: Two indicators that fade almost alike give any age at all, which these bounds catch.
OLDEST_HOURS: Final = 300.0
#: Samples whose pairs of indicators are looked at together: as many as a processor's cache holds.
_TOGETHER: Final = 256


@dataclass(frozen=True, slots=True)
class Reference:
    """What has to be known of the reference samples of one origin."""

    both: Floats  #: how many have a and b
    ratios: Floats  #: their sums of log10(a / b)
    counts: Floats  #: how many have a
    sums: Floats  #: of a
    logs: Floats  #: the mean of log10(a)


def reference(values: Floats) -> Reference:
    there = (values > 0).astype(np.float64)
    logs = np.log10(values, where=values > 0, out=np.zeros_like(values))
    both = there.T @ there
    sums = logs.T @ there
    counts = there.sum(axis=0)
    return Reference(
        both,
        sums - sums.T,
        counts,
        np.where(values > 0, values, 0.0).sum(axis=0),
        np.divide(logs.sum(axis=0), counts, where=counts > 0, out=np.zeros_like(counts)),
    )


@dataclass(frozen=True, slots=True)
class Corrected:
    values: Floats
    hours: Floats
    dilutions: Floats
    misfit: Floats  #: mean squared difference to the reference, in orders of magnitude


def correct(samples: Floats, slopes: Floats, known: Reference) -> Corrected:
    """Take age and dilution back. `slopes` is by sample and indicator; unknown ones are NaN."""
    there = (samples > 0) & np.isfinite(slopes)
    logs = np.log10(samples, where=there, out=np.zeros_like(samples))
    k = np.where(there, slopes, 0.0)
    hours = np.empty(len(samples))
    for start in range(0, len(samples), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        hours[part] = _hours(logs[part], k[part], there[part], known)
    used = there & (known.counts > 0)
    fading = k * hours[:, None]
    dilutions = _dilutions(np.where(used, samples, 0.0), fading, known)
    values = samples / np.power(10.0, np.nan_to_num(slopes) * hours[:, None]) * dilutions[:, None]
    off = np.where(used, logs - fading + np.log10(dilutions)[:, None] - known.logs, 0.0)
    misfit = (off**2).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    return Corrected(values, hours, dilutions, misfit)


def uncorrected(samples: Floats) -> Corrected:
    """As they came: what correction has to be better than."""
    none = np.zeros(len(samples))
    return Corrected(samples, none, none + 1.0, none)


def _hours(logs: Floats, k: Floats, there: NDArray[np.bool_], known: Reference) -> Floats:
    """Least squares of (k_a - k_b) t = log10(v_a / v_b) - log10(u_a / u_b), over pairs and rows."""
    pairs = there[:, :, None] & there[:, None, :]
    c = np.where(pairs, k[:, :, None] - k[:, None, :], 0.0)
    seen = known.both * (logs[:, :, None] - logs[:, None, :]) - known.ratios
    above = (c * seen).sum(axis=(1, 2))
    below = (known.both * c**2).sum(axis=(1, 2))
    hours = np.divide(above, below, where=below > 0, out=np.zeros_like(above))
    return np.asarray(np.clip(hours, 0.0, OLDEST_HOURS))


def _dilutions(samples: Floats, fading: Floats, known: Reference) -> Floats:
    """Least squares of v_a d = u_a 10^(k_a t), over indicators and rows."""
    above = (samples * np.power(10.0, fading) * known.sums).sum(axis=1)
    below = (known.counts * samples**2).sum(axis=1)
    found = np.divide(above, below, where=below > 0, out=np.ones_like(above))
    return np.where(np.isfinite(found) & (found > 0), found, 1.0)
