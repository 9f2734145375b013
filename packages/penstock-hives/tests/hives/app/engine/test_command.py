"""`penstock hives serve`, as people run it: ready, reloaded, stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.databases import copy_of
from tests.hives.app.serving import PATIENCE
from tests.hives.app.sites import furnish
from tests.peers import Process


@pytest.fixture
def database(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        furnish(url)
        yield url


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def test_it_serves_is_reloaded_by_sighup_and_stops_by_sigterm(
    database: str, tmp_path: Path
) -> None:
    site = tmp_path / "site.toml"
    site.write_text("[engine]\nworkers = 1\nlinger = 0.1\n")
    command = (
        *(sys.executable, "-m", "penstock", "hives", "serve", "--port", "0"),
        *("--data", str(tmp_path / "data"), "--database", database, "--site", str(site)),
        *("--metrics", "0", "--access-log", str(tmp_path / "access.log")),
    )
    process = Process([*command], tmp_path / "hives.log", dict(os.environ))
    try:
        url = process.wait_for_line("penstock hives ready: ").partition("ready: ")[2]
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            until(lambda: client.get("/v1/hives").status_code == 200)
            assert "<title>Hives" in client.get("/").text
            site.write_text("[engine]\nworkers = nonsense\n")
            os.kill(process.pid, signal.SIGHUP)
            until(lambda: "reload refused" in process.output())
            site.write_text("[engine]\nworkers = 1\nlinger = 0.2\n")
            os.kill(process.pid, signal.SIGHUP)
            until(lambda: '"event": "reloaded"' in process.output())
            until(lambda: client.get("/v1/hives").status_code == 200)
            metrics = process.wait_for_line("penstock hives metrics: ").partition("metrics: ")[2]
            counted = 'http_requests_total{location="public",method="GET",status="200"}'
            until(lambda: counted in client.get(metrics).text)
    finally:
        assert process.end(signal.SIGTERM) == 0
    assert '"GET /v1/hives HTTP/1.1" 200 ' in (tmp_path / "access.log").read_text()


def test_a_configuration_that_cannot_be_used_ends_it_with_its_status(
    database: str, tmp_path: Path
) -> None:
    site = tmp_path / "site.toml"
    site.write_text("[engine]\nworkers = 0\n")
    command = (
        *(sys.executable, "-m", "penstock", "hives", "serve", "--port", "0"),
        *("--data", str(tmp_path / "data"), "--database", database, "--site", str(site)),
    )
    process = Process([*command], tmp_path / "hives.log", dict(os.environ))
    until(lambda: not process.running())
    assert process.end(signal.SIGTERM) == 2
    assert "workers" in process.output()
