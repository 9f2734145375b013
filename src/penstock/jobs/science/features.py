"""From counts to what classifiers look at: logarithms, their sums and differences."""

from __future__ import annotations

import numpy as np

from penstock.jobs.science.indicators import AT, DIFFERENCES, FEATURES, RATIO, SUMS
from penstock.jobs.science.matrix import Floats


def logarithm(values: Floats) -> Floats:
    """log10 of what is there; 0 of what is none; missing stays missing."""
    logs = np.log10(values, where=values > 0, out=np.zeros_like(values))
    return np.where(np.isnan(values), np.nan, logs)


def features(values: Floats) -> Floats:
    """Samples x features; missing where a parent is."""
    logs = logarithm(values)
    made = np.empty((len(values), len(FEATURES)))
    made[:, : len(AT)] = logs
    at = len(AT)
    for one, other in SUMS.values():
        made[:, at] = logs[:, AT[one]] + logs[:, AT[other]]
        at += 1
    for one, other in DIFFERENCES.values():
        made[:, at] = logs[:, AT[one]] - logs[:, AT[other]]
        at += 1
    assert FEATURES[at] == RATIO
    young, total = values[:, AT["HBSA.Y"]], values[:, AT["HBSA.T"]]
    both = (young > 0) & (total > 0)
    ratio = np.divide(young, total, where=both, out=np.ones_like(young))
    made[:, at] = np.where(both, np.log10(ratio), np.nan)
    return made
