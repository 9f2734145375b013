"""Simulated river samples: aged, diluted, and with some indicators not counted.

Samples are drawn in blocks of a fixed size. The generator of a block is made from the seed and its
number, so blocks can be drawn in any order and process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import AT, DISCRIMINATIVE, INDICATORS, Season
from penstock_jobs.science.matrix import Floats

#: Ages for which models are built, in hours.
SECTIONS: Final = (0.0, 25.0, 50.0, 75.0, 100.0, 125.0, 150.0)
MAX_AGE_HOURS: Final = 150.0
MAX_DILUTION: Final = 500.0
#: Samples in a block of draws.
BLOCK: Final = 10_000


@dataclass(frozen=True, slots=True)
class SimulatedSamples:
    rows: NDArray[np.intp]  #: of the reference matrix
    values: Floats
    seasons: NDArray[np.int8]
    hours: Floats
    dilutions: Floats

    def __len__(self) -> int:
        return len(self.rows)


def aged_values(values: Floats, slopes: Floats, hours: Floats | float) -> Floats:
    """Zero stays zero, missing stays missing; without a slope a value does not change."""
    decayed = np.power(10.0, np.nan_to_num(slopes) * np.asarray(hours)[..., None])
    return np.asarray(values * decayed)


def draw_samples(
    values: Floats, coefficients: DecayCoefficients, count: int, seed: int, block: int = 0
) -> SimulatedSamples:
    """One block of samples, from rows of the reference."""
    random = np.random.Generator(np.random.Philox(key=[seed % 2**64, block]))
    rows = random.integers(len(values), size=count)
    hours = random.uniform(0.0, MAX_AGE_HOURS, count)
    dilutions = random.uniform(1.0, MAX_DILUTION, count)
    seasons = random.integers(len(Season), size=count).astype(np.int8)
    counted = _counted(random, count)
    slopes = coefficients.slopes[seasons]
    drawn = aged_values(values[rows], slopes, hours) / dilutions[:, None]
    return SimulatedSamples(rows, np.where(counted, drawn, np.nan), seasons, hours, dilutions)


def _counted(random: np.random.Generator, count: int) -> NDArray[np.bool_]:
    """Which indicators are counted: two to six, at least one of the discriminative ones."""
    sizes = np.clip(random.binomial(5, 0.7, count), 2, 6)
    discriminative = np.array([AT[name] for name in DISCRIMINATIVE])
    order = random.random((count, len(INDICATORS)))
    order[np.arange(count), random.choice(discriminative, count)] = -1.0
    ranks = order.argsort(axis=1).argsort(axis=1)
    return np.asarray(ranks < sizes[:, None])
