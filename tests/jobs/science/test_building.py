"""Signatures: the same whoever builds them, and better than what costs nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock.jobs import archive
from penstock.jobs.errors import DataError, FormError
from penstock.jobs.science import modelfile
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.classifiers import CONFIGURATIONS, Configuration, fit
from penstock.jobs.science.matrix import Matrix
from penstock.jobs.science.model import (
    ALL,
    FRESH,
    Model,
    build,
    carry_out,
    gathered,
    searches,
    unbuilt,
)
from penstock.jobs.science.prediction import Predictor
from penstock.jobs.science.signatures import FOLDS, Signature, folds, suitable
from penstock.jobs.science.simulation import BLOCK, draw
from penstock.jobs.science.validation import validate
from tests.jobs.science.conftest import FEW


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_every_classifier_tells_clear_classes_apart(configuration: Configuration) -> None:
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


def test_folds_are_stratified(matrix: Matrix) -> None:
    fold = folds(matrix.origins, (1, 0, 0))
    for label in (-1, 1):
        sizes = np.bincount(fold[matrix.origins == label], minlength=FOLDS)
        assert sizes.max() - sizes.min() <= 1
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 1


def test_a_bag_has_a_signature_of_every_size_for_every_repetition(model: Model) -> None:
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
    model: Model, matrix: Matrix, slopes: Coefficients
) -> None:
    wanted = searches(configurations=FEW)
    bare = unbuilt(matrix, slopes)
    found = {each: carry_out(bare, each) for each in reversed(wanted)}
    assert gathered(bare, found).bags == model.bags


def test_another_seed_finds_others(matrix: Matrix, slopes: Coefficients, model: Model) -> None:
    other = build(unbuilt(matrix, slopes, seed=2), searches(configurations=FEW[:1]))
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


def test_too_few_samples_or_no_trials_are_refused(matrix: Matrix, slopes: Coefficients) -> None:
    humans = matrix.take(np.flatnonzero(matrix.origins == 1))
    with pytest.raises(DataError, match="0 animal samples; at least 10"):
        unbuilt(humans, slopes)
    with pytest.raises(DataError, match="no trials"):
        unbuilt(matrix, Coefficients(np.full_like(slopes.slopes, np.nan)))


def test_progress_is_told(matrix: Matrix, slopes: Coefficients) -> None:
    told: list[float] = []
    build(unbuilt(matrix, slopes), searches(configurations=FEW[:2]), told.append)
    assert told == [0.5, 1.0]


def test_draws_are_the_same_for_a_block_and_differ_between_blocks(
    matrix: Matrix, slopes: Coefficients
) -> None:
    one, again, other = (draw(matrix.values, slopes, 500, 7, block) for block in (3, 3, 4))
    assert np.array_equal(one.values, again.values, equal_nan=True)
    assert not np.array_equal(one.hours, other.hours)
    counted = np.isfinite(one.values).sum(axis=1)
    assert counted.min() >= 2
    assert counted.max() <= 6
    assert ((one.hours >= 0) & (one.hours <= 150) & (one.dilutions >= 1)).all()
    assert len(one) == 500 <= BLOCK


def test_models_beat_saying_human_each_time_on_samples_kept_from_them(
    matrix: Matrix, slopes: Coefficients
) -> None:
    built: dict[tuple[str, ...], Model] = {}

    def make(part: Matrix, k: Coefficients) -> Predictor:
        built[part.samples] = build(unbuilt(part, k), searches(configurations=FEW[:1]))
        return Predictor(built[part.samples])

    def uncorrected(part: Matrix, k: Coefficients) -> Predictor:
        return Predictor(built[part.samples], corrects=False)

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


def test_a_model_file_is_read_as_it_was_written(model: Model, samples: Matrix) -> None:
    data = modelfile.save(model)
    again = modelfile.load(data)
    assert again.bags == model.bags
    assert again.matrix.samples == model.matrix.samples
    assert modelfile.save(again) == data, "and written as it was read"
    one = Predictor(model).predict(samples.values, samples.seasons)["ERROR"]
    other = Predictor(again).predict(samples.values, samples.seasons)["ERROR"]
    assert (one.classes == other.classes).all()
    assert (one.confidence == other.confidence).all()


def test_a_model_file_is_plain_data(model: Model) -> None:
    files = archive.contents(modelfile.save(model))
    assert list(files) == [
        "manifest.json",
        "coefficients.json",
        "signatures.json",
        "matrix.parquet",
    ]
    assert json.loads(files["manifest.json"])["schema"] == 1


def damaged(model: Model, name: str, content: bytes | None) -> bytes:
    files = archive.contents(modelfile.save(model))
    if content is None:
        del files[name]
    else:
        files[name] = content
    return archive.pack(files)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("manifest.json", None, "'manifest.json' is not in it"),
        ("manifest.json", b"{", "not a model"),
        ("manifest.json", b'{"schema": 2}', "a model of version 2; 1 is understood here"),
        ("signatures.json", b'[{"season": "autumn", "section": 0}]', "AUTUMN"),
        ("signatures.json", b'[{"season": "winter", "section": 9, "signatures": []}]', "section 9"),
        (
            "signatures.json",
            b'[{"season": "winter", "section": 0, "signatures": [["tree", [], 1]]}]',
            "'tree' is not in it",
        ),
        ("coefficients.json", b'{"winter": {}}', "'summer' is not in it"),
        ("matrix.parquet", b"nothing", "not a model"),
    ],
)
def test_a_file_that_is_no_model_is_refused(
    model: Model, name: str, content: bytes | None, told: str
) -> None:
    with pytest.raises(FormError, match=told):
        modelfile.load(damaged(model, name, content))


def test_a_model_whose_matrix_was_changed_is_refused(model: Model) -> None:
    other = replace(model, matrix=replace(model.matrix, values=model.matrix.values * 2))
    changed = archive.contents(modelfile.save(other))["matrix.parquet"]
    with pytest.raises(FormError, match="the matrix has changed"):
        modelfile.load(damaged(model, "matrix.parquet", changed))
