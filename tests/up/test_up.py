"""`penstock up` without a terminal: parts start in order, come back, and stop in reverse."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Self

import pytest

from penstock.client.blocking_client import connect
from tests.cli.command import PENSTOCK, SECONDS, Running, descendants, ended, environment, run
from tests.paths import ROOT
from tests.peers import free_port

ANYWHERE = ("--listen", "amqp://127.0.0.1:0", "--listen", "http://127.0.0.1:0")
SMALL = ("--no-pipeline", "--hives", "2")


class AtTerminal:
    """A command with a controlling terminal of its own, as a shell gives it one."""

    def __init__(self, *command: str, **variables: str) -> None:
        self._screen, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (60, 200))
        self._drawn = b""
        self._changed = Condition()
        self.process = subprocess.Popen(
            # Python, and so its tests, may have been started with Ctrl-C ignored.
            ["env", "--default-signal=INT", "setsid", "--ctty", *command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=ROOT,
            env=environment(TERM="xterm", **variables),
        )
        os.close(terminal)
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # nobody has the terminal any more
            while drawn := os.read(self._screen, 65536):
                with self._changed:
                    self._drawn += drawn
                    self._changed.notify_all()

    def wait_until_it_runs(self, part: str) -> None:
        """As the panel says."""
        shown = re.compile(rf"{part}\b[^\n]*running".encode())
        with self._changed:
            drawn = self._changed.wait_for(lambda: shown.search(self._drawn), 2 * SECONDS)
        assert drawn, self._drawn[-4000:].decode(errors="replace")

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join()
        os.close(self._screen)


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


def test_a_second_one_on_the_same_data_is_refused(up: Running, tmp_path: Path) -> None:
    second = run("up", "--data", tmp_path / "data", *ANYWHERE, *SMALL)
    assert second.returncode == 1
    assert f"{tmp_path / 'data'} is in use by process {up.process.pid}: " in second.stderr
    assert "--data" in second.stderr
    assert "Traceback" not in second.stderr


def test_it_is_refused_where_a_broker_runs(tmp_path: Path) -> None:
    with Running(tmp_path, "broker", "--data", tmp_path / "data", *ANYWHERE) as broker:
        refused = run("up", "--data", tmp_path / "data", *ANYWHERE, *SMALL)
        assert refused.returncode == 1
        assert f"in use by a broker, process {broker.process.pid}: " in refused.stderr


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
    assert all(ended(pid) for pid in parts)


def test_a_broker_that_dies_is_started_again(tmp_path: Path) -> None:
    address = f"amqp://127.0.0.1:{free_port()}"
    flags = ("--data", tmp_path / "data", "--no-demo", "--no-pipeline", "--listen", address)
    with Running(tmp_path, "up", *flags) as up:
        [started] = events(up, event="running")
        os.kill(started["pid"], signal.SIGKILL)
        with connect(address, retry_seconds=30) as fabric:
            fabric.publish("somebody.is.there", "again")
        assert "broker: ended with status -9; restart in 0.5 s" in up.errors


def test_a_terminal_that_takes_nothing_does_not_hold_up_supervision(tmp_path: Path) -> None:
    address = f"amqp://127.0.0.1:{free_port()}"
    flags = ("--data", tmp_path / "data", "--no-demo", "--no-pipeline", "--listen", address)
    screen, terminal = pty.openpty()
    _fill(os.ttyname(terminal))
    up = subprocess.Popen(
        [*PENSTOCK, "up", *map(str, flags)],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environment(TERM="xterm"),
    )
    try:
        with connect(address, retry_seconds=60) as fabric:
            fabric.publish("somebody.is.there", "once")
        [broker] = _brokers(up.pid)
        os.kill(broker, signal.SIGKILL)
        assert ended(broker)
        with connect(address, retry_seconds=60) as fabric:
            fabric.publish("somebody.is.there", "again")
        [broker] = _brokers(up.pid)
        up.send_signal(signal.SIGINT)
        assert up.wait(SECONDS) == 0
        assert ended(broker)
    finally:
        up.kill()
        up.wait()
        os.close(terminal)
        os.close(screen)


def test_ctrl_c_at_a_terminal_ends_every_process_with_status_0(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with AtTerminal(*PENSTOCK, "up", *data, *ANYWHERE, *SMALL) as up:
        up.wait_until_it_runs("demo")  # the last one
        family = descendants(up.process.pid)
        up.press_ctrl_c()
        assert up.process.wait(SECONDS) == 0
        assert len(family) >= 3  # the broker, the demonstration, the guardian
        assert all(ended(pid) for pid in family)


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
        [left_out] = events(up, event="part left out")
        assert left_out["part"] == "pipeline"
        assert "Spark needs Java 17 or later" in left_out["reason"]
        assert [event["part"] for event in events(up, event="running")] == ["broker"]


def _fill(terminal: str) -> None:
    """Until it takes no more, as nobody reads."""
    descriptor = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(descriptor, b" " * 1024)
    os.close(descriptor)


def _brokers(supervisor: int) -> list[int]:
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(supervisor)}
    return [pid for pid, each in words.items() if b"\0broker\0" in each]
