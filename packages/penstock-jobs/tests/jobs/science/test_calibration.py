"""The confidence of answers, on rows that the models have not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock_jobs.errors import JobFormatError
from penstock_jobs.science import synthetic
from penstock_jobs.science.calibration import (
    THRESHOLD,
    brier_score,
    expected_calibration_error,
    reliability,
)
from penstock_jobs.science.classifiers import CONFIGURATIONS
from penstock_jobs.science.decay import decay_coefficients
from penstock_jobs.science.matrix import prepare
from penstock_jobs.science.model import FRESH, SourceModel, build, new_model, searches
from penstock_jobs.science.model_file import load_model, save_model
from penstock_jobs.science.prediction import SourcePredictor
from penstock_jobs.science.report import explanation
from penstock_jobs.science.simulation import draw_samples
from penstock_jobs.science.validation import calibrate

FEW = [each for each in CONFIGURATIONS if each.name in ("lda", "bayes")]


@pytest.fixture(scope="module")
def model() -> SourceModel:
    matrix = prepare(synthetic.reference_columns(1))
    coefficients = decay_coefficients(synthetic.agings(1))
    built = build(new_model(matrix, coefficients), searches(FRESH, FEW))
    return replace(built, calibration=calibrate(built))


def test_the_measures_are_those_of_the_field() -> None:
    confidence = np.array([0.9, 0.9, 0.6, 0.6])
    right = np.array([True, True, True, False])

    assert expected_calibration_error(confidence, right) == pytest.approx(0.1)
    assert brier_score(confidence, right) == pytest.approx((0.01 + 0.01 + 0.16 + 0.36) / 4)
    assert [(each.count, each.right) for each in reliability(confidence, right)] == [
        (2, 0.5),
        (2, 1.0),
    ]


def test_calibration_makes_the_confidence_of_held_out_rows_true(model: SourceModel) -> None:
    assert model.calibration is not None
    report = model.calibration.report

    assert report.ece[0] > 0.08
    assert report.ece[1] < report.ece[0] / 2
    assert report.brier[1] < report.brier[0]
    assert 0.3 < report.coverage < 1.0
    assert report.accuracy > 0.85


def test_samples_that_do_not_tell_are_undecided(model: SourceModel) -> None:
    drawn = draw_samples(model.matrix.values, model.coefficients, 300, 5)
    voted = SourcePredictor(replace(model, calibration=None))
    before = voted.predict(drawn.values, drawn.seasons.tolist())["ERROR2"]
    found = SourcePredictor(model).predict(drawn.values, drawn.seasons.tolist())["ERROR2"]
    origins = np.array(explanation(found)["origin"])

    undecided = origins == "undecided"
    assert 0 < undecided.sum() < before.predicted
    assert (before.classes[undecided] != 0).all()
    assert (found.confidence[undecided] < THRESHOLD).all()
    decided = found.classes != 0
    assert (found.confidence[decided] >= THRESHOLD).all()
    assert (found.classes[decided] == before.classes[decided]).all()


def test_the_calibration_is_part_of_the_model_file(model: SourceModel) -> None:
    assert load_model(save_model(model)).calibration == model.calibration
    assert load_model(save_model(replace(model, calibration=None))).calibration is None
    assert model.calibration is not None
    short = replace(model.calibration, weights=model.calibration.weights[:-1])
    with pytest.raises(JobFormatError, match="other inputs"):
        load_model(save_model(replace(model, calibration=short)))
