"""The pipeline's benchmarks run, and what they measure is right: each checks its own tables.

Nothing is said about time: a figure from so few reports on a busy machine means nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_all_of_it_quickly(tmp_path: Path) -> None:
    import typer

    from benchmarks.pipeline.__main__ import main

    app = typer.Typer()
    app.command()(main)
    page = tmp_path / "page.md"

    ran = CliRunner().invoke(app, ["--quick", "--scenario", "live", "--markdown", str(page)])

    assert ran.exit_code == 0, ran.output
    assert "## Live" in page.read_text()


def test_engines_agree_and_a_backlog_is_entered_whole(spark: SparkSession) -> None:
    from benchmarks.pipeline.catchup import catch_up
    from benchmarks.pipeline.engines import compare

    caught_up = catch_up(spark, 3000, sensors=30)
    took = compare(spark, 3000, sensors=30, rounds=1)

    assert caught_up.reports == 3000
    assert caught_up.spent.total > 0
    assert len(took) == 3
