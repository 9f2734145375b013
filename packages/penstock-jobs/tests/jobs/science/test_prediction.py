"""Age and dilution taken back, votes weighed, and a verdict that can be explained."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.science.boosted import BoostedPredictor
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import AT, FEATURES, INDICATORS, Season
from penstock_jobs.science.matrix import Floats, SampleMatrix, features, logarithm
from penstock_jobs.science.model import SourceModel
from penstock_jobs.science.prediction import (
    MAX_SAMPLE_HOURS,
    SCHEMES,
    SourcePredictor,
    correct_samples,
    reference_statistics,
    weights,
)
from penstock_jobs.science.report import (
    data_frame,
    explanation,
    prediction_lines,
    prediction_result,
)
from penstock_jobs.science.simulation import aged_values, draw_samples


def by_hand(sample: Floats, slopes: Floats, rows: Floats) -> tuple[float, float]:
    """The least squares as they are written down: over all pairs and rows, no sums made before."""
    above = below = 0.0
    for a in range(len(sample)):
        for b in range(len(sample)):
            for row in rows:
                if all(x > 0 for x in (sample[a], sample[b], row[a], row[b])):
                    c = slopes[a] - slopes[b]
                    above += c * (np.log10(sample[a] / sample[b]) - np.log10(row[a] / row[b]))
                    below += c * c
    hours = float(np.clip(above / below if below else 0.0, 0, MAX_SAMPLE_HOURS))
    above = below = 0.0
    for a in range(len(sample)):
        for row in rows:
            if sample[a] > 0 and row[a] > 0:
                above += sample[a] * row[a] * 10 ** (slopes[a] * hours)
                below += sample[a] ** 2
    return hours, above / below if below else 1.0


def test_the_sums_give_what_the_equations_give(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    rows = matrix.values[:20]
    known = reference_statistics(rows)
    drawn = draw_samples(matrix.values, slopes, 15, seed=3)
    k = slopes.slopes[drawn.seasons]
    found = correct_samples(drawn.values, k, known)
    for at in range(len(drawn)):
        hours, dilution = by_hand(drawn.values[at], k[at], rows)
        assert found.hours[at] == pytest.approx(hours, abs=1e-6)
        assert found.dilutions[at] == pytest.approx(dilution, rel=1e-6)


def test_a_sample_of_the_reference_is_given_back_its_age_and_dilution(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    row = matrix.values[:1]
    k = slopes.of(Season.SUMMER)[None, :]
    river = aged_values(row, k[0], 60.0) / 40.0
    found = correct_samples(river, k, reference_statistics(row))
    assert found.hours[0] == pytest.approx(60.0)
    assert found.dilutions[0] == pytest.approx(40.0)
    assert np.allclose(found.values, row, equal_nan=True)
    assert found.misfit[0] == pytest.approx(0.0, abs=1e-12)


def test_a_sample_with_one_indicator_has_no_age(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    alone = np.full((1, len(INDICATORS)), np.nan)
    alone[0, AT["FC"]] = 1000.0
    found = correct_samples(alone, slopes.slopes[:1], reference_statistics(matrix.values))
    assert found.hours[0] == 0.0
    assert np.isfinite(found.dilutions[0])


def test_a_sample_in_which_nothing_was_found_is_left_as_it_is(
    matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    found = correct_samples(
        np.zeros((1, len(INDICATORS))), slopes.slopes[:1], reference_statistics(matrix.values)
    )
    assert (found.hours[0], found.dilutions[0]) == (0.0, 1.0)
    assert (found.values == 0).all()


def test_features_are_missing_where_a_parent_is() -> None:
    values = np.full((1, len(INDICATORS)), np.nan)
    values[0, AT["FC"]], values[0, AT["GA17"]], values[0, AT["FRNAPH.I"]] = 1000.0, 10.0, 0.0
    made = dict(zip(FEATURES, features(values)[0], strict=True))
    assert made["FC"] == 3.0
    assert made["FC_GA17"] == 2.0
    assert made["FRNAPH.I"] == 0.0, "what was looked for and not found counts as one"
    assert np.isnan(made["FC_FE"])
    assert np.isnan(made["HBSAY_HBSAT"])
    assert logarithm(np.array([0.0, 100.0]))[1] == 2.0


def test_the_synthetic_samples_are_told_apart(model: SourceModel, samples: SampleMatrix) -> None:
    found = SourcePredictor(model).predict(samples.values, samples.seasons)
    assert list(found) == list(SCHEMES)
    for each in found.values():
        assert each.predicted == len(samples)
        assert (each.classes == samples.origins).sum() >= len(samples) - 1
        assert (each.confidence >= 0.5).all()
        assert all(deciding for deciding in each.deciding)


def test_samples_are_judged_alike_alone_and_together(
    model: SourceModel, samples: SampleMatrix
) -> None:
    predictor = SourcePredictor(model)
    together = predictor.predict(samples.values, samples.seasons)["ERROR2"]
    for row in range(len(samples)):
        alone = predictor.predict(samples.values[row : row + 1], samples.seasons[row : row + 1])
        assert alone["ERROR2"].classes[0] == together.classes[row]
        assert alone["ERROR2"].hours[0] == pytest.approx(together.hours[row])


def test_a_sample_no_model_can_judge_is_not_predicted(model: SourceModel) -> None:
    nothing = np.full((1, len(INDICATORS)), np.nan)
    found = SourcePredictor(model).predict(nothing, [Season.SUMMER])["ERROR"]
    assert found.predicted == 0
    assert found.deciding == ((),)


def test_each_hypothesis_looks_at_the_sample_as_it_came(
    model: SourceModel, samples: SampleMatrix
) -> None:
    before = samples.values.copy()
    SourcePredictor(model).predict(samples.values, samples.seasons)
    assert np.array_equal(samples.values, before, equal_nan=True)


@given(st.sampled_from(SCHEMES), st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_weights_add_up_to_one_and_favour_the_better(scheme: str, scores: list[float]) -> None:
    found = weights(scheme, scores)
    assert found.sum() == pytest.approx(1.0)
    order = np.argsort(scores)
    assert (np.diff(found[order]) >= -1e-12).all()


def test_equally_good_models_have_equal_weights() -> None:
    assert weights("ERROR2", [1.0, 1.0, 1.0, 1.0]).tolist() == [0.25] * 4
    assert weights("ERROR", [0.8, 0.9]).tolist() == pytest.approx([1 / 3, 2 / 3])


def test_boosted_trees_have_an_answer_for_every_sample(
    matrix: SampleMatrix, slopes: DecayCoefficients, samples: SampleMatrix
) -> None:
    found = BoostedPredictor(matrix, slopes, samples=1500).predict(samples.values, samples.seasons)[
        "BOOSTED"
    ]
    assert found.predicted == len(samples)
    assert (found.classes == samples.origins).sum() >= len(samples) - 1
    assert found.deciding[0] == tuple(
        name
        for name, there in zip(INDICATORS, np.isfinite(samples.values[0]), strict=True)
        if there
    )


def test_what_is_answered(model: SourceModel, samples: SampleMatrix) -> None:
    found = SourcePredictor(model).predict(samples.values, samples.seasons)["ERROR2"]
    answer = prediction_result(samples, found)
    assert (answer.name, answer.total_samples, answer.predicted_samples) == ("ERROR2", 15, 15)
    assert answer.confusion is not None
    assert sum(map(sum, answer.confusion.values())) == 15
    wrong = answer.confusion["1"][0] + answer.confusion["-1"][1]
    assert answer.test_error == pytest.approx(wrong / 15)
    assert answer.dataset is not None
    assert list(answer.dataset)[13:] == [
        "CLASS",
        "tHM",
        "dHM",
        "PREDHM",
        "tAN",
        "dAN",
        "PREDAN",
        "PRED",
        "origin",
        "confidence",
        "hours",
        "dilution",
        "decided by",
    ]
    assert answer.dataset["origin"] == explanation(found)["origin"]


def test_what_is_printed_is_as_the_original_prints_it(
    model: SourceModel, samples: SampleMatrix
) -> None:
    found = SourcePredictor(model).predict(samples.values, samples.seasons)["ERROR2"]
    printed = list(prediction_lines("test", samples, found))
    assert printed[0] == "Table:"
    at = printed.index("Confusion matrix (real\\pred):")
    assert printed[at - 1] == "15 test samples predicted out of 15"
    assert printed[at + 1].split() == ["-1", "1"]
    a, b, c, d = (int(cell) for row in printed[at + 2 : at + 4] for cell in row.split()[1:])
    error = f"{100 * (b + c) / 15:.4g}%"
    assert printed[-2:] == [f"Test error: {error}", f"test-ERROR2: 15/15, {a} {b} {c} {d}, {error}"]


def test_a_wide_table_goes_on_below() -> None:
    columns = {f"column{number}": ["x" * 20, ""] for number in range(5)}
    printed = list(data_frame(columns))
    assert all(len(line) <= 80 for line in printed)
    assert [line.split()[0] for line in printed] == ["column0", "1", "2", "column3", "1", "2"]
    assert printed[2].split() == ["2", "NA", "NA", "NA"]


def test_a_prediction_in_blocks_is_the_same_and_counts_its_samples(
    model: SourceModel, matrix: SampleMatrix, slopes: DecayCoefficients
) -> None:
    drawn = draw_samples(matrix.values, slopes, 130, 7)
    seasons = drawn.seasons.tolist()
    counted: list[tuple[int, int]] = []
    predictor = SourcePredictor(model)
    whole = predictor.predict(drawn.values, seasons)

    parts = predictor.predict_in_blocks(
        drawn.values, seasons, lambda done, of: counted.append((done, of["ERROR2"]))
    )

    assert counted[-1] == (130, whole["ERROR2"].predicted)
    assert [done for done, _ in counted] == list(range(2, 131, 2))
    for scheme, each in whole.items():
        assert np.array_equal(parts[scheme].classes, each.classes)
        assert np.allclose(parts[scheme].confidence, each.confidence)
        assert np.allclose(parts[scheme].human.misfit, each.human.misfit)
        assert parts[scheme].deciding == each.deciding
