"""The units are valid and sandboxed, their commands exist, and the broker reports to systemd."""

from __future__ import annotations

import configparser
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

UNITS: Final = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
PENSTOCK: Final = Path(sys.executable).with_name("penstock")
INSTALLED: Final = "/opt/penstock/bin/penstock"
#: `systemd-analyze security`: 0 is the least exposed, 10 the most.
MOST_EXPOSURE: Final = 25  # in tenths

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_valid_and_its_sandbox_is_tight(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace(INSTALLED, str(PENSTOCK)))
    checked = analyze("verify", "--man=no", here)
    assert unit.name not in checked.stderr, checked.stderr
    rated = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", here)
    assert rated.returncode == 0, rated.stdout[-200:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_a_unit_takes_its_options(unit: Path) -> None:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment]
    parsed.read(unit)
    program, *words = parsed["Service"]["ExecStart"].split()
    assert program == INSTALLED
    done = subprocess.run(
        [PENSTOCK, *words, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for option in (word for word in words if word.startswith("--")):
        assert option in done.stdout


def test_the_broker_reports_that_it_is_ready_lives_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        environment.pop("WATCHDOG_PID", None)
        broker = subprocess.Popen(
            [PENSTOCK, "broker", "--data", tmp_path / "data", "--listen", "amqp://127.0.0.1:0"],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(1000).startswith(b"READY=1\nSTATUS=listening on amqp://127.0.0.1:")
            assert [manager.recv(1000) for _ in range(2)] == [b"WATCHDOG=1"] * 2
            broker.send_signal(signal.SIGTERM)
            while (last := manager.recv(1000)) == b"WATCHDOG=1":
                pass
            assert last.startswith(b"STOPPING=1")
            assert broker.wait(30) == 0
        finally:
            broker.kill()
            broker.wait()


def analyze(verb: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", verb, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
    )
