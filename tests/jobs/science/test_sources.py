"""Four sources instead of two origins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.jobs.errors import DataError
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.indicators import INDICATORS, source
from penstock.jobs.science.matrix import Matrix
from penstock.jobs.science.simulation import draw
from penstock.jobs.science.sources import Sources


@pytest.fixture(scope="module")
def distinct(matrix: Matrix) -> Matrix:
    """A reference whose sources differ more than those of the synthetic one, where all animals are
    alike: of each, some indicators are a thousand times as many."""
    values = matrix.values.copy()
    sources = np.array([source(sample) for sample in matrix.samples])
    for place, name in enumerate(("cattle", "pig", "poultry")):
        values[np.ix_(sources == name, range(place, len(INDICATORS), 4))] *= 1000
    return replace(matrix, values=values)


def test_sources_that_differ_are_told_apart(distinct: Matrix, slopes: Coefficients) -> None:
    drawn = draw(distinct.values, slopes, 400, seed=8)
    names = [distinct.samples[row] for row in drawn.rows]

    found = Sources(distinct, slopes, samples=800).predict(drawn.values, drawn.seasons.tolist())

    right, known = found.right(names)
    human = sum(source(name) == "human" for name in names)
    assert known == len(names)
    assert right > human + 0.1 * known
    assert (found.confidence > 0.25).all()


def test_a_sample_in_which_nothing_was_counted_has_none(
    distinct: Matrix, slopes: Coefficients
) -> None:
    nothing = np.full((1, len(INDICATORS)), np.nan)
    found = Sources(distinct, slopes, samples=300).predict(nothing, [1])

    assert found.sources == ("",)
    assert found.confidence.tolist() == [0.0]
    assert found.right(["P1-HM01"]) == (0, 0)


def test_a_reference_with_too_few_of_a_source_is_refused(
    matrix: Matrix, slopes: Coefficients
) -> None:
    humans = np.flatnonzero(matrix.origins == 1)
    with pytest.raises(DataError, match="of each of two sources or more; here: 54 human"):
        Sources(matrix.take(humans), slopes)
