"""`penstock up` with all there is: sensors report, figures come, it stops, and goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import blocking_client
from tests.cli.command import SECONDS, Running, descendants, ended, run
from tests.databases import grounds_of_its_own
from tests.peers import free_port
from tests.up.test_up import ANYWHERE, AtTerminal, events

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("java")]


@pytest.fixture
def data() -> Iterator[Path]:
    with grounds_of_its_own() as folder:
        yield folder / "data"


def whole(folder: Path, data: Path) -> Running:
    return Running(folder, "up", "--data", data, *ANYWHERE)


def progress(up: Running, data: Path, *, after: int = -1) -> dict[str, Any]:
    """The status of the pipeline once it has committed a batch later than `after`.

    Tables grow before the batch that writes them is committed, so rows do not imply one."""
    found: dict[str, Any]
    while True:
        shown = run("pipeline", "status", "--json", "--data", data, "--url", up.addresses[0])
        (found,) = json.loads(shown.stdout)
        if found["done"] is not None and found["done"]["batch"] > after:
            return found


def test_sensors_that_report_become_figures_and_it_goes_on_after_a_stop(
    tmp_path: Path, data: Path
) -> None:
    with whole(tmp_path / "first", data) as up:
        assert up.line().startswith("penstock up live: ")
        before = progress(up, data)
        assert before["state"] == "running"
        assert before["tables"]["silver.reports"]["rows"] > 0
        family = descendants(up.process.pid)
        assert up.stop(signal.SIGINT) == (0, "")
        assert all(ended(pid) for pid in family)
    order = [event["part"] for event in events(up, event="stopped")]
    applications = ["dashboards", "pump", "jobs", "alerts", "hives"]
    assert order == [*applications, "demo", "pipeline", "database", "broker"]
    with whole(tmp_path / "second", data) as up:
        assert up.line().startswith("penstock up live: ")
        after = progress(up, data, after=before["done"]["batch"])
    assert after["state"] == "running"
    assert after["dead_letters"] < after["tables"]["silver.reports"]["rows"] / 100


@pytest.mark.slow
def test_a_pipeline_that_is_killed_comes_back_and_figures_go_on(tmp_path: Path, data: Path) -> None:
    with whole(tmp_path, data) as up:
        assert up.line().startswith("penstock up live: ")
        [started] = [each for each in events(up, event="running") if each["part"] == "pipeline"]
        with blocking_client.connect(up.addresses[0]) as fabric:
            with fabric.subscribe("occupancy.#") as figures:
                os.kill(started["pid"], signal.SIGKILL)
                assert ended(started["pid"])
                # What was on its way when it died has come, and nothing comes until it is back.
                while len(_pipelines(up)) < 2:
                    figures.receive(timeout=300)
                figure = figures.receive(timeout=300).json()
    assert figure["version"] > 0
    assert "pipeline: ended with status -9" in up.errors


@pytest.mark.slow
def test_ctrl_c_of_make_up_ends_every_process(data: Path) -> None:
    venv = Path(sys.prefix)
    made = (f"--old-file={venv}/.installed", "--old-file=build/site/index.html")
    with AtTerminal(
        *("make", f"VENV={venv}", *made, "up"),
        PENSTOCK_DATA=str(data),
        PENSTOCK_BROKER__LISTEN=f"amqp://127.0.0.1:{free_port()},http://127.0.0.1:{free_port()}",
        PENSTOCK_UP__SITE=f"127.0.0.1:{free_port()}",
        PENSTOCK_UP__DASHBOARDS=f"127.0.0.1:{free_port()}",
    ) as up:
        up.wait_until_it_runs("dashboards")
        family = descendants(up.process.pid)
        up.press_ctrl_c()
        assert up.process.wait(2 * SECONDS) == -signal.SIGINT  # make's own, 130 in a shell
        assert len(family) > 10
        assert all(ended(pid) for pid in family)


def _pipelines(up: Running) -> list[dict[str, Any]]:
    return [each for each in events(up, event="running") if each["part"] == "pipeline"]
