"""`penstock up` without a terminal: parts start in order, come back, and stop in reverse."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.client.blocking import connect
from tests.cli.command import Running, environment, run
from tests.peers import free_port

ANYWHERE = ("--listen", "amqp://127.0.0.1:0", "--listen", "http://127.0.0.1:0")
SMALL = ("--no-pipeline", "--hives", "2")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, "up", "--data", tmp_path / "data", *ANYWHERE, *SMALL) as running:
        yield running


def events(up: Running, **wanted: str) -> list[dict[str, Any]]:
    """What the supervisor has told so far."""
    told = [json.loads(line) for line in up.errors.splitlines() if line.startswith("{")]
    return [
        event
        for event in told
        if event["logger"] == "penstock.up" and wanted.items() <= event.items()
    ]


def test_it_is_ready_when_all_parts_are(up: Running) -> None:
    assert up.ready.startswith("penstock up ready: amqp://127.0.0.1:")
    running = [event["part"] for event in events(up, event="running")]
    assert running == ["broker", "demo"]


def test_what_the_demonstration_sends_is_kept_in_a_stream(up: Running) -> None:
    with connect(up.addresses[0]) as fabric, fabric.replay("sensors") as kept:
        frame = kept.receive()
    assert frame.offset == 0
    assert frame.address.startswith("sensors.")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_all_parts_in_reverse_order(up: Running, how: signal.Signals) -> None:
    assert up.stop(how) == (0, "")
    assert [event["part"] for event in events(up, event="stopped")] == ["demo", "broker"]
    for event in events(up, event="running"):
        with pytest.raises(ProcessLookupError):
            os.kill(event["pid"], 0)


def test_parts_do_not_outlive_a_supervisor_that_was_killed(up: Running) -> None:
    parts = [event["pid"] for event in events(up, event="running")]
    up.process.kill()
    up.process.wait()
    for pid in parts:
        with suppress(ProcessLookupError):  # not our child: only a pidfd tells when it ends
            ended = os.pidfd_open(pid)
            assert _readable(ended)
            os.close(ended)


def test_a_broker_that_dies_is_started_again(tmp_path: Path) -> None:
    address = f"amqp://127.0.0.1:{free_port()}"
    flags = ("--data", tmp_path / "data", "--no-demo", "--no-pipeline", "--listen", address)
    with Running(tmp_path, "up", *flags) as up:
        [started] = events(up, event="running")
        os.kill(started["pid"], signal.SIGKILL)
        with connect(address, patience=30) as fabric:
            fabric.publish("somebody.is.there", "again")
        assert "broker: ended with status -9; again in 0.5 s" in up.errors


def test_a_port_in_use_ends_it_with_the_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"amqp://127.0.0.1:{taken.getsockname()[1]}"
        said = run("up", "--data", tmp_path, "--no-pipeline", "--listen", address)
    assert (said.returncode, said.stdout) == (2, "")
    assert f"cannot listen on {address}" in said.stderr
    assert "Traceback" not in said.stderr


def test_without_java_it_says_what_to_do_and_runs_the_rest(tmp_path: Path) -> None:
    flags = ("--data", tmp_path / "data", "--database", "postgresql://127.0.0.1:1/nobody")
    nowhere = environment(JAVA_HOME=str(tmp_path))
    without = ("--no-demo", "--no-applications")
    with Running(tmp_path, "up", *flags, *without, *ANYWHERE, env=nowhere) as up:
        [left_out] = events(up, event="left out")
        assert left_out["part"] == "pipeline"
        assert "Spark needs Java 17 or later" in left_out["reason"]
        assert [event["part"] for event in events(up, event="running")] == ["broker"]


def _readable(descriptor: int, seconds: float = 30.0) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])
