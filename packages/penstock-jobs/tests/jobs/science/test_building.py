"""Signatures: the same whoever builds them, and better than what costs nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock_jobs import archive
from penstock_jobs.errors import DatasetError, JobFormatError
from penstock_jobs.science import model_file
from penstock_jobs.science.classifiers import CONFIGURATIONS, ClassifierConfiguration, fit
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.model import (
    ALL,
    FOLDS,
    FRESH,
    Signature,
    SourceModel,
    build,
    folds,
    new_model,
    run_search,
    searches,
    suitable,
    with_signatures,
)
from penstock_jobs.science.prediction import SourcePredictor
from penstock_jobs.science.simulation import BLOCK, draw_samples
from penstock_jobs.science.validation import validate
from tests.jobs.science.conftest import FEW


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_every_classifier_tells_clear_classes_apart(configuration: ClassifierConfiguration) -> None:
    random = np.random.default_rng(5)
    y = np.repeat([-1, 1], 40).astype(np.int8)
    x = random.normal(0, 1, (80, 3)) + y[:, None] * [2.0, 0.5, 0.0] + [100.0, 0.0, -5.0]
    decide = fit(configuration, x, y)
    others = random.normal(0, 1, (80, 3)) + y[:, None] * [2.0, 0.5, 0.0] + [100.0, 0.0, -5.0]
    assert (decide(others) == y).mean() > 0.9
    assert (decide(others) == fit(configuration, x, y)(others)).all()


def test_there_are_thirty_configurations_and_450_evaluations_each() -> None:
    assert len(CONFIGURATIONS) == len({each.name for each in CONFIGURATIONS}) == 30
    assert len(searches(ALL)) == 14 * 30


def test_folds_are_stratified(matrix: SampleMatrix) -> None:
    fold = folds(matrix.origins, (1, 0, 0))
    for label in (-1, 1):
        sizes = np.bincount(fold[matrix.origins == label], minlength=FOLDS)
        assert sizes.max() - sizes.min() <= 1
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1


def test_a_bag_has_a_signature_of_every_size_for_every_repetition(model: SourceModel) -> None:
    bag = model.bags[FRESH[0]]
    assert len(bag) == len(FEW) * 25
    for configuration in FEW:
        ours = [each for each in bag if each.configuration == configuration]
        assert [len(each.features) for each in ours] == [1, 2, 3, 4, 5] * 5
        firsts = [each.features[0] for each in ours[::5]]
        assert len(set(firsts)) == 5, "what came first is not used again"
        for at, first in enumerate(firsts):
            assert all(first not in each.features for each in ours[5 * (at + 1) :])


def test_the_same_is_found_again_in_any_order(
    model: SourceModel, matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    wanted = searches(configurations=FEW)
    bare = new_model(matrix, slopes)
    found = {each: run_search(bare, each) for each in reversed(wanted)}
    assert with_signatures(bare, found).bags == model.bags


def test_another_seed_finds_others(
    matrix: SampleMatrix, slopes: DecayCoefficients, model: SourceModel
) -> None:
    other = build(new_model(matrix, slopes, seed=2), searches(configurations=FEW[:1]))
    assert other.bags[FRESH[0]] != model.bags[FRESH[0]][:25]


def test_the_best_are_chosen_and_of_equals_the_smaller() -> None:
    one = CONFIGURATIONS[0]
    bag = [
        Signature(one, (0, 1), 1.0),
        Signature(one, (2,), 1.0),
        Signature(one, (1,), 0.9),
        Signature(one, (3,), 1.0),
        Signature(one, (5,), 1.0),
    ]
    present = np.array([True, True, True, True, True, False])
    assert suitable(bag, present, 3) == [bag[1], bag[3], bag[0]]


def test_too_few_samples_or_no_trials_are_refused(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    humans = matrix.take(np.flatnonzero(matrix.origins == 1))
    with pytest.raises(DatasetError, match="0 animal samples; at least 10"):
        new_model(humans, slopes)
    with pytest.raises(DatasetError, match="no trials"):
        new_model(matrix, DecayCoefficients(np.full_like(slopes.slopes, np.nan)))


def test_progress_is_told(matrix: SampleMatrix, slopes: DecayCoefficients) -> None:
    told: list[float] = []
    build(new_model(matrix, slopes), searches(configurations=FEW[:2]), told.append)
    assert told == [0.5, 1.0]


def test_draws_are_the_same_for_a_block_and_differ_between_blocks(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    one, again, other = (draw_samples(matrix.values, slopes, 500, 7, block) for block in (3, 3, 4))
    assert np.array_equal(one.values, again.values, equal_nan=True)
    assert not np.array_equal(one.hours, other.hours)
    counted = np.isfinite(one.values).sum(axis=1)
    assert counted.min() >= 2
    assert counted.max() <= 6
    assert ((one.hours >= 0) & (one.hours <= 150) & (one.dilutions >= 1)).all()
    assert len(one) == 500 <= BLOCK


def test_models_beat_saying_human_each_time_on_samples_kept_from_them(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    built: dict[tuple[str, ...], SourceModel] = {}

    def make(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        built[part.samples] = build(new_model(part, k), searches(configurations=FEW[:1]))
        return SourcePredictor(built[part.samples])

    def uncorrected(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        return SourcePredictor(built[part.samples], corrects=False)

    scores = validate(matrix, slopes, make, samples=500)
    plain = validate(matrix, slopes, uncorrected, samples=500)
    assert scores["ERROR2"].error < 0.25 < scores["ALWAYS_HUMAN"].error
    assert scores["ERROR2"].error < plain["ERROR2"].error
    assert scores["ERROR2"].coverage > 0.4
    assert scores["ERROR2"].confusion.sum() == (scores["ERROR2"].classes != 0).sum()
    more, fewer = scores["ERROR2"].accuracy_with(5), scores["ERROR2"].accuracy_with(3)
    assert more is not None
    assert fewer is not None
    assert scores["ERROR2"].accuracy_with(12) is None


def test_a_model_file_is_read_as_it_was_written(model: SourceModel, samples: SampleMatrix) -> None:
    data = model_file.save_model(model)
    again = model_file.load_model(data)
    assert again.bags == model.bags
    assert again.matrix.samples == model.matrix.samples
    assert model_file.save_model(again) == data, "and written as it was read"
    one = SourcePredictor(model).predict(samples.values, samples.seasons)["ERROR"]
    other = SourcePredictor(again).predict(samples.values, samples.seasons)["ERROR"]
    assert (one.classes == other.classes).all()
    assert (one.confidence == other.confidence).all()


def test_a_model_file_is_plain_data(model: SourceModel) -> None:
    files = archive.contents(model_file.save_model(model))
    assert list(files) == [
        "manifest.json",
        "coefficients.json",
        "signatures.json",
        "matrix.parquet",
    ]
    assert json.loads(files["manifest.json"])["schema"] == 1


def damaged(model: SourceModel, name: str, content: bytes | None) -> bytes:
    files = archive.contents(model_file.save_model(model))
    if content is None:
        del files[name]
    else:
        files[name] = content
    return archive.pack(files)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("manifest.json", None, "'manifest.json' is missing"),
        ("manifest.json", b"{", "not a model"),
        ("manifest.json", b'{"schema": 2}', "the model has version 2; only 1 is supported"),
        ("signatures.json", b'[{"season": "autumn", "section": 0}]', "AUTUMN"),
        ("signatures.json", b'[{"season": "winter", "section": 9, "signatures": []}]', "section 9"),
        (
            "signatures.json",
            b'[{"season": "winter", "section": 0, "signatures": [["tree", [], 1]]}]',
            "'tree' is missing",
        ),
        ("coefficients.json", b'{"winter": {}}', "'summer' is missing"),
        ("matrix.parquet", b"nothing", "not a model"),
    ],
)
def test_a_file_that_is_no_model_is_refused(
    model: SourceModel, name: str, content: bytes | None, told: str
) -> None:
    with pytest.raises(JobFormatError, match=told):
        model_file.load_model(damaged(model, name, content))


def test_a_model_whose_matrix_was_changed_is_refused(model: SourceModel) -> None:
    other = replace(model, matrix=replace(model.matrix, values=model.matrix.values * 2))
    changed = archive.contents(model_file.save_model(other))["matrix.parquet"]
    with pytest.raises(JobFormatError, match="the matrix has changed"):
        model_file.load_model(damaged(model, "matrix.parquet", changed))
