"""How fast each indicator decays: slopes of log10 of the count per hour, from trials.

Trials come in files, `envFC-Estiu.txt`, or in requests. In a file an empty line or a time of zero
separates trials: both are in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.model import Aging
from penstock_jobs.science.indicators import (
    AT,
    INDICATORS,
    Season,
    indicator,
    season,
    season_at,
)
from penstock_jobs.science.matrix import Floats

Trial = tuple[tuple[float, float], ...]

_FILE: Final = re.compile(r"env(?P<column>.+)-(?P<season>[^-]+)\.txt", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DecayCoefficients:
    """Slopes per hour: seasons x indicators; NaN without trials."""

    slopes: Floats

    def of(self, season: Season) -> Floats:
        return np.asarray(self.slopes[season])


def parse_file_name(name: str) -> tuple[str, Season] | None:
    """The indicator and the season; None for any other file."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    column, when = indicator(match["column"]), season(match["season"])
    return None if column is None or when is None else (column, when)


def read_trials(data: bytes, name: str = "") -> tuple[Trial, ...]:
    """Rows of hours and log10 of the value, in Latin-1; `#` starts a comment."""
    trials: list[list[tuple[float, float]]] = [[]]
    for number, line in enumerate(data.decode("latin-1").splitlines(), 1):
        text, *_ = line.split("#", 1)
        if not line.strip():
            trials.append([])
        if not text.strip():
            continue
        try:
            hours, value = (float(word.replace(",", ".")) for word in text.split())
        except ValueError as error:
            problem = f"{text.strip()!r} is not a time in hours and a value"
            raise DatasetError([DatasetProblem(number, name, problem)]) from error
        if hours == 0:
            trials.append([])
        trials[-1].append((hours, value))
    return tuple(tuple(trial) for trial in trials if trial)


def decay_coefficients(agings: Mapping[str, Iterable[Aging]]) -> DecayCoefficients:
    """The plain mean of the trials' slopes, by indicator and season."""
    slopes: dict[tuple[Season, str], list[float]] = {}
    for column, each in agings.items():
        name = indicator(column)
        if name is None:
            continue
        for aging in each:
            when = season_at(Season.SUMMER.position if aging.position is None else aging.position)
            if when is None:
                problem = f"{aging.position} is not a position in the year, 0 to 1"
                raise DatasetError([DatasetProblem(0, column, problem)])
            found = slopes.setdefault((when, name), [])
            found += [slope for slope in map(trial_slope, aging.trials) if np.isfinite(slope)]
    table = np.full((len(Season), len(INDICATORS)), np.nan)
    for (when, name), found in slopes.items():
        if found:
            table[when, AT[name]] = np.mean(found)
    return DecayCoefficients(table)


def trial_slope(trial: Trial) -> float:
    """By ordinary least squares; NaN for a trial with a single time."""
    hours, values = np.array(trial, dtype=np.float64).reshape(-1, 2).T
    if len(hours) < 2 or np.ptp(hours) == 0:
        return float("nan")
    centred = hours - hours.mean()
    return float(centred @ values / (centred @ centred))
