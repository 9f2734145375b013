"""`penstock broker`: one line when it is ready, a clean stop when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import PENSTOCK, Running, environment, run
from tests.peers import Process

ANYWHERE = ("--listen", "amqp://127.0.0.1:0", "--listen", "http://127.0.0.1:0")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, "broker", "--data", tmp_path / "data", *ANYWHERE) as running:
        yield running


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_ready_line_has_the_addresses_it_really_listens_on(broker: Running) -> None:
    assert broker.ready.startswith("penstock broker ready: amqp://127.0.0.1:")
    assert [url.partition("://")[0] for url in broker.addresses] == ["amqp", "http"]
    for url in broker.addresses:
        port = int(url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), 10).close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(broker: Running, how: signal.Signals) -> None:
    assert broker.stop(how) == (0, "")


def test_standard_output_has_the_ready_line_and_nothing_else(broker: Running) -> None:
    _, rest = broker.stop()
    assert rest == ""
    events = [json.loads(line)["event"] for line in broker.errors.splitlines()]
    assert events == ["ready", "stopped"]


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path, taken_port: int) -> None:
    address = f"amqp://127.0.0.1:{taken_port}"
    said = run("broker", "--data", tmp_path, "--listen", address)
    assert (said.returncode, said.stdout) == (2, "")
    assert f"cannot listen on {address}" in said.stderr
    assert "already in use" in said.stderr
    assert "Traceback" not in said.stderr


def test_an_address_that_is_none_says_what_one_looks_like(tmp_path: Path) -> None:
    said = run("broker", "--data", tmp_path, "--listen", "localhost:5672")
    assert said.returncode == 2
    assert "flag --listen: broker.listen" in said.stderr
    assert "scheme://host:port" in said.stderr


def test_told_to_stop_with_its_input_it_stops_at_once_where_there_is_none(tmp_path: Path) -> None:
    listen = ("--listen", "amqp://127.0.0.1:0", "--listen", "http://127.0.0.1:0")
    said = run("broker", "--data", tmp_path, *listen, "--stop-with-stdin", stdin=None)
    assert said.returncode == 0
    assert "Traceback" not in said.stderr


def test_status_looks_at_one_that_runs(broker: Running) -> None:
    shown = run("broker", "status", "--url", broker.addresses[1])
    assert shown.returncode == 0
    assert "0 connections" in shown.stdout


def test_definitions_go_out_and_come_in(broker: Running, tmp_path: Path) -> None:
    url = broker.addresses[1]
    exported = run("definitions", "export", "--url", url)
    definitions = json.loads(exported.stdout)
    definitions["vhosts"].append({"name": "imported"})
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    assert run("definitions", "import", tmp_path / "definitions.json", "--url", url).returncode == 0
    again = json.loads(run("definitions", "export", "--url", url).stdout)
    assert {"name": "imported"}.items() <= again["vhosts"][-1].items()


def test_a_member_that_waits_for_its_coordinator_says_so_and_stops_when_told(
    tmp_path: Path,
) -> None:
    arguments = ("broker", "--data", str(tmp_path / "data"), "--cluster", "etcd://127.0.0.1:1/test")
    process = Process(
        [*PENSTOCK, *arguments, "--listen", "amqp://127.0.0.1:0"],
        tmp_path / "log",
        environment(),
    )
    try:
        while "retrying" not in process.output():
            assert process.running(), process.output()
            time.sleep(0.05)
        assert "etcd at 127.0.0.1:1: " in process.output()
    finally:
        status = process.end(signal.SIGTERM)
    assert status == 0
    assert "penstock broker ready" not in process.output()
