"""One small world for all tests of the science: synthetic data, and models built from them."""

from __future__ import annotations

import pytest

from penstock.jobs.science import synthetic
from penstock.jobs.science.ageing import Coefficients, coefficients
from penstock.jobs.science.classifiers import CONFIGURATIONS
from penstock.jobs.science.matrix import Matrix, prepare
from penstock.jobs.science.model import Model, build, searches, unbuilt

#: Quick ones, of different nature.
FEW = [each for each in CONFIGURATIONS if each.name in ("lda", "bayes", "knn-3")]


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return prepare(synthetic.reference_columns(1))


@pytest.fixture(scope="session")
def samples() -> Matrix:
    return prepare(synthetic.test_columns(1))


@pytest.fixture(scope="session")
def slopes() -> Coefficients:
    return coefficients(synthetic.agings(1))


@pytest.fixture(scope="session")
def model(matrix: Matrix, slopes: Coefficients) -> Model:
    return build(unbuilt(matrix, slopes), searches(configurations=FEW))
