"""One small world for all tests of the science: synthetic data, and models built from them."""

from __future__ import annotations

import pytest

from penstock_jobs.science import synthetic
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import DecayCoefficients, decay_coefficients
from penstock_jobs.science.matrix import SampleMatrix, prepare
from penstock_jobs.science.model import SourceModel, build, new_model, searches

#: Quick ones, of different nature.
FEW = [each for each in CONFIGURATIONS if each.name in ("lda", "bayes", "knn-3")]


@pytest.fixture(scope="session")
def matrix() -> SampleMatrix:
    return prepare(synthetic.reference_columns(1))


@pytest.fixture(scope="session")
def samples() -> SampleMatrix:
    return prepare(synthetic.test_columns(1))


@pytest.fixture(scope="session")
def slopes() -> DecayCoefficients:
    return decay_coefficients(synthetic.agings(1))


@pytest.fixture(scope="session")
def model(matrix: SampleMatrix, slopes: DecayCoefficients) -> SourceModel:
    return build(new_model(matrix, slopes), searches(configurations=FEW))
