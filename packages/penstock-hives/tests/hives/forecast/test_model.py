"""The global model and its trees."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from penstock_hives.arrays import Floats
from penstock_hives.forecast.features import make_features
from penstock_hives.forecast.model import (
    BoostingParameters,
    ForecastModel,
    TrainingSamples,
    export_trees,
    fit_trees,
    make_samples,
)
from tests.hives.forecast.given import SMALL, venues


@pytest.fixture(scope="module")
def learned() -> TrainingSamples:
    return TrainingSamples.concat(
        make_samples(each.grid, make_features(each.grid, each.public)) for each in venues()
    )


@pytest.fixture(scope="module")
def model(learned: TrainingSamples) -> ForecastModel:
    return ForecastModel.fit(learned, seed=1, growth=SMALL)


def noise(rows: int = 3000) -> tuple[Floats, Floats]:
    random = np.random.default_rng(3)
    values = random.normal(size=(rows, 5))
    values[random.random(values.shape) < 0.1] = np.nan
    values[:, 4] = np.round(values[:, 4])
    return values, np.nan_to_num(values[:, 0]) * 3 + np.nan_to_num(values[:, 1]) ** 2


@pytest.mark.parametrize("loss", ["absolute_error", "squared_error"])
def test_our_trees_answer_as_those_they_were_made_from(loss: str) -> None:
    rows, targets = noise()
    theirs = HistGradientBoostingRegressor(loss=loss, max_iter=20, random_state=0)
    theirs.fit(rows, targets)
    ours = export_trees(theirs)
    asked = np.vstack([rows, np.full((1, 5), np.nan), np.full((1, 5), 1e300)])
    assert np.allclose(ours.predict(asked), theirs.predict(asked), rtol=1e-12, atol=1e-12)
    json.dumps(ours.to_json(), allow_nan=False)  # the name is a hash of it


def test_many_rows_are_answered_as_few_are() -> None:
    rows, targets = noise()
    trees = fit_trees(rows, targets, 0.5, 0, BoostingParameters(rounds=400, leaves=4))
    whole = trees.predict(rows)
    assert np.array_equal(whole, np.concatenate([trees.predict(rows[:1]), trees.predict(rows[1:])]))
    assert trees.predict(rows[:0]).shape == (0,)


def test_the_same_rows_and_seed_give_the_same_model(
    learned: TrainingSamples, model: ForecastModel
) -> None:
    again = ForecastModel.fit(learned, seed=1, growth=SMALL)
    other = ForecastModel.fit(learned, seed=2, growth=SMALL)
    assert again.name == model.name
    assert other.name != model.name


def test_p90_is_never_under_p50_nor_either_under_none(
    model: ForecastModel, learned: TrainingSamples
) -> None:
    p50, p90 = model.expected(learned.rows, np.full(len(learned), 7.0))
    assert (p90 >= p50).all()
    assert (p50 >= 0).all()


def test_nine_in_ten_stay_under_p90(model: ForecastModel, learned: TrainingSamples) -> None:
    _, p90 = model.expected(learned.rows, np.ones(len(learned)))
    assert 0.87 < (learned.ratios <= p90).mean() < 0.93


def test_a_day_forecast_alone_is_as_when_all_are(model: ForecastModel) -> None:
    venue = venues(1)[0]
    known = make_features(venue.grid, venue.public)
    place = 180
    among = model.expected(known.values[place], known.scale[place])
    alone = model.for_day(venue.grid, venue.grid.days[place], venue.public)
    assert np.allclose(among[0], alone[0])
    assert np.allclose(among[1], alone[1])


def test_samples_are_drawn_by_seed(learned: TrainingSamples) -> None:
    drawn = learned.subsample(500, 1)
    assert len(drawn) == 500
    assert np.array_equal(drawn.ratios, learned.subsample(500, 1).ratios)
    assert not np.array_equal(drawn.ratios, learned.subsample(500, 2).ratios)
    assert learned.subsample(10**9, 1) is learned


def test_nothing_is_warned_about(learned: TrainingSamples) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in venues(1, 40):
            assert len(make_samples(each.grid, make_features(each.grid, each.public))) > 0
