"""`penstock store`, as the shell sees it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock_store import Database, EmbeddedServer, StoreUnavailable
from penstock_store.commands.store import app
from penstock_store.migrations import HEAD
from penstock_store.schema import revisions

PROGRAM = "from penstock_store.commands.store import app; app()"


@pytest.fixture
def running(grounds: Path) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--data", str(grounds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield child
    child.terminate()
    child.communicate(timeout=60)


def ready(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().removeprefix("penstock store ready: ").strip()


def test_it_is_ready_with_its_schema_and_says_where(
    grounds: Path, running: subprocess.Popen[str]
) -> None:
    url = ready(running)

    assert revisions(url)["store"] == HEAD
    asked = CliRunner().invoke(app, ["url", "--data", str(grounds)])
    assert asked.stdout.strip() == url


def test_sigterm_stops_it_cleanly(grounds: Path, running: subprocess.Popen[str]) -> None:
    ready(running)
    running.send_signal(signal.SIGTERM)

    assert running.wait(60) == 0
    assert EmbeddedServer(grounds / "pg").pid is None


def test_it_ends_when_its_server_is_killed(grounds: Path, running: subprocess.Popen[str]) -> None:
    ready(running)
    pid = EmbeddedServer(grounds / "pg").pid
    assert pid is not None
    subprocess.run(["kill", "-KILL", str(pid)], check=True)

    assert running.wait(60) != 0


def test_where_nothing_runs_there_is_no_url(grounds: Path) -> None:
    asked = CliRunner().invoke(app, ["url", "--data", str(grounds)])

    assert isinstance(asked.exception, StoreUnavailable)


def test_migrating_another_database_says_from_where_to_where(empty: str) -> None:
    first = CliRunner().invoke(app, ["migrate", "--url", empty])
    second = CliRunner().invoke(app, ["migrate", "--url", empty])

    assert f"schema store at {HEAD}, was empty\n" in first.stdout
    assert f"schema store at {HEAD}\n" in second.stdout
    with Database(empty) as database:
        assert database.rows("SELECT count(*) AS n FROM pipeline_batch") == [{"n": 0}]
