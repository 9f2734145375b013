"""Four sources instead of two origins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock_jobs.errors import DatasetError
from penstock_jobs.science.boosted import SourceClassifier
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import INDICATORS, source
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.simulation import draw_samples


@pytest.fixture(scope="module")
def distinct(matrix: SampleMatrix) -> SampleMatrix:
    """A reference whose sources differ more than those of the synthetic one, where all animals are
    alike: of each, some indicators are a thousand times as many."""
    values = matrix.values.copy()
    sources = np.array([source(sample) for sample in matrix.samples])
    for place, name in enumerate(("cattle", "pig", "poultry")):
        values[np.ix_(sources == name, range(place, len(INDICATORS), 4))] *= 1000
    return replace(matrix, values=values)


def test_sources_that_differ_are_told_apart(
    distinct: SampleMatrix, slopes: DecayCoefficients
) -> None:
    drawn = draw_samples(distinct.values, slopes, 400, seed=8)
    names = [distinct.samples[row] for row in drawn.rows]

    found = SourceClassifier(distinct, slopes, samples=800).predict(
        drawn.values, drawn.seasons.tolist()
    )

    right, known = found.right(names)
    human = sum(source(name) == "human" for name in names)
    assert known == len(names)
    assert right > human + 0.1 * known
    assert (found.confidence > 0.25).all()


def test_a_sample_in_which_nothing_was_counted_has_none(
    distinct: SampleMatrix, slopes: DecayCoefficients
) -> None:
    nothing = np.full((1, len(INDICATORS)), np.nan)
    found = SourceClassifier(distinct, slopes, samples=300).predict(nothing, [1])

    assert found.sources == ("",)
    assert found.confidence.tolist() == [0.0]
    assert found.right(["P1-HM01"]) == (0, 0)


def test_a_reference_with_too_few_of_a_source_is_refused(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    humans = np.flatnonzero(matrix.origins == 1)
    with pytest.raises(DatasetError, match="two or more sources are needed; here: 54 human"):
        SourceClassifier(matrix.take(humans), slopes)
