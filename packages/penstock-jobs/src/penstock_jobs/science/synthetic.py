"""Synthetic reference data with the distribution and the gaps of real data.

Means, spreads and slopes were measured on a matrix of 103 samples from five laboratories; every
value is drawn. A shared factor correlates the indicators of a sample. The same seed gives the same
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock_jobs.model import Aging
from penstock_jobs.science.decay import Trial
from penstock_jobs.science.indicators import REFERENCE_COLUMNS, SAMPLE, SHARES, Season

Columns = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Shape:
    """Mean and spread of log10 in human and animal samples; shares of animal samples that are zero
    or below detection; slopes per hour in winter and summer."""

    human: tuple[float, float]
    animal: tuple[float, float]
    none: float
    censored: float
    slopes: tuple[float, float]


_SHAPES: Final = {
    "FC": _Shape((6.88, 0.47), (7.10, 0.88), 0.0, 0.0, (-0.00938, -0.01802)),
    "FE": _Shape((6.06, 0.31), (6.11, 0.88), 0.0, 0.0, (-0.00728, -0.02265)),
    "CL": _Shape((4.99, 0.52), (4.93, 1.06), 0.0, 0.0, (-0.00242, -0.00678)),
    "SOMCPH": _Shape((6.17, 0.55), (6.66, 0.90), 0.0, 0.0, (-0.00366, -0.01131)),
    "FRNAPH": _Shape((5.44, 0.54), (5.45, 1.20), 0.12, 0.0, (-0.00422, -0.01921)),
    "FRNAPH.I": _Shape((3.60, 0.90), (4.60, 0.90), 0.25, 0.0, (-0.00116, -0.01188)),
    "FRNAPH.II": _Shape((5.20, 0.55), (2.60, 0.90), 0.55, 0.0, (-0.00310, -0.01750)),
    "FRNAPH.III": _Shape((4.75, 0.60), (4.70, 0.90), 0.25, 0.0, (-0.00905, -0.02333)),
    "FRNAPH.IV": _Shape((3.50, 0.90), (4.40, 0.90), 0.28, 0.0, (-0.00707, -0.02104)),
    "RYC2056": _Shape((4.31, 0.57), (3.12, 1.93), 0.0, 0.19, (-0.00231, -0.00938)),
    "GA17": _Shape((4.13, 0.68), (-0.26, 0.57), 0.0, 0.97, (-0.00651, -0.01381)),
    "HBSA.Y": _Shape((6.41, 0.59), (3.54, 1.62), 0.0, 0.84, (-0.03415, -0.05979)),
    "HBSA.T": _Shape((7.02, 0.58), (7.31, 1.29), 0.0, 0.0, (-0.02453, -0.07313)),
}
#: Samples by source, and by laboratory.
_SOURCES: Final = (("HM", 54), ("CW", 20), ("PL", 16), ("PG", 13))
_LABORATORIES: Final = (31, 20, 12, 20, 20)
_TEST: Final = (("HM", 8), ("PG", 4), ("CW", 2), ("PL", 1))
_TEST_GAPS: Final = 40
#: The share of the spread that the indicators of a sample have in common.
_SHARED: Final = 0.35
_TRIAL_NOISE: Final = 0.2
_LAST_HOURS: Final = {Season.WINTER: 360, Season.SUMMER: 192}


def reference_columns(seed: int) -> Columns:
    """103 samples of known origin, without gaps."""
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    sources = [source for source, count in _SOURCES for _ in range(count)]
    laboratories = random.permutation(
        [number for number, count in enumerate(_LABORATORIES, 1) for _ in range(count)]
    )
    numbers: dict[str, int] = {}
    samples = []
    for source, laboratory in zip(sources, laboratories, strict=True):
        numbers[source] = numbers.get(source, 0) + 1
        samples.append(f"P{laboratory}-{source}{numbers[source]:02}")
    return _columns(samples, random)


def test_columns(seed: int) -> Columns:
    """15 river samples: up to four days old in summer, diluted up to a hundred times."""
    random = np.random.Generator(np.random.PCG64([seed, 2]))
    samples = [f"P6-{source}{at + 1:02}" for source, count in _TEST for at in range(count)]
    hours = random.uniform(0, 96, len(samples))
    dilutions = random.uniform(1, 100, len(samples))
    columns = _columns(samples, random, hours, dilutions)
    cells = [(name, row) for name in columns if name != SAMPLE for row in range(len(samples))]
    text = {name: list(values) for name, values in columns.items()}
    for at in random.permutation(len(cells))[:_TEST_GAPS]:
        name, row = cells[at]
        text[name][row] = ""
    return {name: tuple(values) for name, values in text.items()}


def agings(seed: int) -> dict[str, tuple[Aging, ...]]:
    """Two to six trials for each indicator and season."""
    random = np.random.Generator(np.random.PCG64([seed, 3]))
    return {
        name: tuple(
            Aging(_trials(random, shape.slopes[season], _LAST_HOURS[season]), season.position)
            for season in Season
        )
        for name, shape in _SHAPES.items()
    }


def _trials(random: np.random.Generator, slope: float, last: int) -> tuple[Trial, ...]:
    trials = []
    for _ in range(random.integers(2, 7)):
        hours = np.linspace(0, last, int(random.integers(5, 10))).round()
        start = random.normal(5.5, 0.5)
        values = start + slope * hours + random.normal(0, _TRIAL_NOISE, len(hours))
        trials.append(
            tuple((float(at), round(float(v), 3)) for at, v in zip(hours, values, strict=True))
        )
    return tuple(trials)


def _columns(
    samples: list[str],
    random: np.random.Generator,
    hours: np.ndarray | None = None,
    dilutions: np.ndarray | None = None,
) -> Columns:
    count = len(samples)
    human = np.array(["HM" in sample for sample in samples])
    load = random.normal(size=count)
    raw: dict[str, np.ndarray] = {}
    for name, shape in _SHAPES.items():
        mean = np.where(human, shape.human[0], shape.animal[0])
        spread = np.where(human, shape.human[1], shape.animal[1])
        own = random.normal(size=count)
        logs = mean + spread * (np.sqrt(_SHARED) * load + np.sqrt(1 - _SHARED) * own)
        if hours is not None and dilutions is not None:
            logs = logs + shape.slopes[Season.SUMMER] * hours - np.log10(dilutions)
        none = random.random(count) < np.where(human, shape.none / 5, shape.none)
        raw[name] = np.where(none, 0.0, np.power(10.0, logs))
    whole = sum(raw[name] for name in SHARES)
    for name in SHARES:
        raw[name] = np.divide(100 * raw[name], whole, where=whole > 0, out=np.zeros(count))
    columns: Columns = {SAMPLE: tuple(samples)}
    for title in REFERENCE_COLUMNS:
        name = title.replace(" ", ".").replace("-", ".")
        if name in raw:
            censored = ~human & (random.random(count) < _SHAPES[name].censored)
            values, hidden = raw[name], censored
        else:
            values, hidden = np.power(10.0, random.normal(3, 1, count)), np.zeros(count, dtype=bool)
        columns[title] = tuple(
            _cell(value, below, share=name in SHARES)
            for value, below in zip(values, hidden, strict=True)
        )
    return columns


def _cell(value: float, censored: bool, *, share: bool) -> str:
    """A share has two decimals, a count three digits."""
    if share:
        return f"{value:.2f}".replace(".", ",")
    if censored:
        return f"<{value * 100:.3g}".replace(".", ",").replace("+", "")
    return "0" if value == 0 else f"{value:.2E}".replace(".", ",")


def trials_text(aging: Aging) -> str:
    """The content of a file of trials."""
    return "\n".join(
        "\n".join(f"{hours:g}\t{value:g}" for hours, value in trial) + "\n"
        for trial in aging.trials
    )
