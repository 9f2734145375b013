"""`penstock pipeline` where it needs no Spark: what it refuses, and what status shows."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from penstock.core.errors import ConfigurationError
from penstock_spark.bronze import MESSAGES_TABLE, BronzeBatch
from penstock_spark.commands.options import parse_time
from penstock_spark.commands.pipeline import app
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.progress import FlowProgress, RunState
from tests.peers import free_port

NOWHERE = f"amqp://guest:guest@127.0.0.1:{free_port()}/"


def status(data: Path, *flags: str) -> str:
    found = CliRunner().invoke(app, ["status", "--data", str(data), "--url", NOWHERE, *flags])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture
def directory(tmp_path: Path) -> FlowDirectory:
    """A flow that was running when its process ended, and has done a batch."""
    directory = FlowDirectory(tmp_path, "tally")
    progress = FlowProgress(directory.progress, "tally")
    progress.set_state(RunState.RUNNING, time.time())
    kept = BronzeBatch(41, 1200, (), {"sensors": 1200}, datetime.now(UTC))
    progress.record_batch(kept, 0.1, 0.2, time.time())
    schema = pa.schema([("batch", pa.int64()), ("day", pa.date32())])
    for name, rows in ((MESSAGES_TABLE, 1200), ("silver.dead_letters", 7)):
        writing = directory.lake.stage(name, 41).open_writer(schema)
        writing.add(pa.table({"batch": [41] * rows, "day": [date(2026, 11, 15)] * rows}, schema))
        directory.lake.commit(name, 41, writing.close(), schema)
    return directory


def test_status_before_anything_has_run_says_what_to_do(tmp_path: Path) -> None:
    assert "penstock pipeline run" in status(tmp_path)


def test_status_tells_that_a_process_is_gone(directory: FlowDirectory) -> None:
    assert "gone" in status(directory.data)


def test_status_tells_that_it_runs(directory: FlowDirectory) -> None:
    with directory.locks.hold(FlowLock.RUNNING):
        assert "running" in status(directory.data)


def test_status_shows_tables_and_dead_letters(directory: FlowDirectory) -> None:
    (found,) = json.loads(status(directory.data, "--json"))

    assert found["done"]["batch"] == 41
    assert found["dead_letters"] == 7
    assert found["tables"]["bronze.messages"]["rows"] == 1200
    assert found["tables"]["bronze.messages"]["files"] == 1


def test_status_tells_of_files_that_cannot_be_read(directory: FlowDirectory) -> None:
    (file,) = directory.lake.table(MESSAGES_TABLE).files()
    FlowProgress(directory.progress, "tally").report_damage(file, "cut short")

    assert "1 files of bronze cannot be read" in " ".join(status(directory.data).split())
    assert json.loads(status(directory.data, "--json"))[0]["damaged_files"] == 1


def test_a_lake_of_an_earlier_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake" / "bronze" / "tally" / "messages" / "log-0").mkdir(parents=True)

    with pytest.raises(ConfigurationError, match="an earlier release, which is not converted"):
        FlowDirectory(tmp_path, "tally").lake.table(MESSAGES_TABLE)


def test_status_without_a_broker_says_so(directory: FlowDirectory) -> None:
    (found,) = json.loads(status(directory.data, "--json"))

    assert found["lag"]["messages"] is None
    assert "does not answer" in found["lag"]["reason"]


def test_a_flow_nobody_knows_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["once", "--flow", "nonesuch", "--data", str(tmp_path)])

    assert isinstance(found.exception, ConfigurationError)
    assert "installed: hives" in str(found.exception)


def test_a_moment_without_a_zone_is_utc() -> None:
    assert parse_time("2026-11-15T12:00") == datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_a_moment_that_is_none_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="should be a time"):
        parse_time("yesterday")


def test_a_flow_may_be_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "local_flow.py").write_text(
        'def open_local(context):\n    raise LookupError(f"opened for {context.broker}")\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = ["once", "--flow", "local_flow:open_local", "--data", str(tmp_path), "--url", NOWHERE]
    found = CliRunner().invoke(app, given)

    assert isinstance(found.exception, LookupError)
    assert str(found.exception) == f"opened for {NOWHERE}"
