"""`penstock hives backtest`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

import penstock_store
from penstock.core.errors import NotFound
from penstock_hives.commands.forecast import backtest
from penstock_hives.forecast.venues import read_venues
from tests.hives.forecast.given import COUNTS

CALIT2 = [str(COUNTS / "calit2.data"), "--country", "US", "--from", "2005-10-09", "--refit", "28"]


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(backtest)
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    path = tmp_path_factory.mktemp("plot") / "calit2.svg"
    return run(*CALIT2, "--plot", str(path)), path


def test_all_methods_are_told_with_their_figures(drawn: tuple[Result, Path]) -> None:
    result, _ = drawn
    assert result.exit_code == 0, result.output
    assert "One day ahead, 2005-10-09 to 2005-11-05, 1 venue" in result.output
    lines = result.output.splitlines()
    line = next(each for each in lines if each.split()[:1] == ["median-4"])
    assert line.split()[1] == "0.366"
    assert any("global model" in each for each in lines)


def test_the_gates_verdict_is_told_with_its_reason(drawn: tuple[Result, Path]) -> None:
    assert "would not be published: no worse on 0 of 1 venues" in drawn[0].output


def test_the_plot_shows_the_week_and_the_venues(drawn: tuple[Result, Path]) -> None:
    text = drawn[1].read_text()
    for words in ("calit2: a week forecast day by day", "peak window", "Errors by venue"):
        assert words in text


def test_a_venue_that_is_not_there_is_told() -> None:
    result = run(*CALIT2, "--venue", "elsewhere")
    assert isinstance(result.exception, NotFound)
    assert "calit2" in str(result.exception)


def test_hives_own_histories_come_from_the_hourly_rollup(inn: penstock_store.Database) -> None:
    start = datetime(2024, 6, 30, 12, tzinfo=UTC)  # midnight there
    for hour, entries in ((0, 5), (9, 8), (25, 3)):
        inn.execute(
            "INSERT INTO occupancy_hour (hive_id, slot, entries) VALUES (7, %s, %s)",
            (start + timedelta(hours=hour), entries),
        )
    (found,) = read_venues(inn)
    assert (found.name, found.public.country) == ("7 The Inn", "NZ")
    assert found.grid.first.isoformat() == "2024-07-01"
    counts = found.grid.counts
    assert [counts[0, 0], counts[0, 9], counts[1, 1]] == [5, 8, 3]
    assert np.isfinite(counts).all()
    assert counts[0, 5] == 0
