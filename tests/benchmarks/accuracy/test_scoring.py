"""The benchmark of accuracy: what it counts, and what it calls undecidable."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from benchmarks.accuracy.__main__ import BOUND
from benchmarks.accuracy.scoring import Score, score
from benchmarks.accuracy.troubles import TROUBLES

START = datetime(2026, 3, 9, tzinfo=UTC)


def scored(name: str, seed: int) -> Score:
    (trouble,) = (each for each in TROUBLES if each.name == name)
    return score(trouble, start=START, days=2, sensors=20, seed=seed)


def test_a_fleet_in_every_trouble_is_counted_as_its_ledger_has_it() -> None:
    found = scored("everything at once", seed=1)

    assert found.sensors == 20
    assert not (found.errors[~found.open] > BOUND).any()
    assert found.naive.mean() > 100 * BOUND


def test_nothing_is_undecidable_where_wrap_points_are_known() -> None:
    found = scored("wraps only, known points", seed=1)

    assert not found.open.any()
    assert np.array_equal(found.errors, np.zeros(20))
