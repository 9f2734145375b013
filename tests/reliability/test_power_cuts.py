"""A short version of the long run."""

from __future__ import annotations

import random

import pytest

from tests.reliability.power_cuts import CutRound


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> CutRound:
    return CutRound(tmp_path_factory.mktemp("cuts"), seconds=1.0)


def test_power_cuts_break_no_promise(recorded: CutRound) -> None:
    for seed in range(5):
        recorded.cut(random.Random(seed))


def test_a_disk_that_ignores_syncs_breaks_one(recorded: CutRound) -> None:
    def cut_often() -> None:
        for seed in range(50):
            recorded.cut(random.Random(seed), drop=lambda record: record[1] == "synced")

    with pytest.raises(AssertionError, match=r"lost|gaps|received"):
        cut_often()
