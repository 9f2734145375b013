"""A directory of configurations, started, looked at, mended and stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock_pump.commands.fleet import FIGURES
from penstock_pump.components import post
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.status import read_status
from tests.cli.command import run
from tests.integration.pump.running import make_tree, settings, tree, until
from tests.peers import Penstock


@pytest.fixture
def folder(
    penstock: Penstock, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "conf"
    broker = f"broker amqp://guest@127.0.0.1:{penstock.port}/\n"
    (home / "subscribe").mkdir(parents=True)
    (home / "winnow").mkdir()
    (home / "credentials.conf").write_text(f"amqp://guest:guest@127.0.0.1:{penstock.port}/\n")
    (home / "winnow" / "w.conf").write_text(
        f"{broker}exchange x{name}\npost_exchange x{name}w\nqueue q_{name}\n"
    )
    (home / "subscribe" / "s.conf").write_text(
        f"{broker}exchange x{name}w\nsubtopic #\ninstances 2\nreport_back off\nmirror on\n"
        f"directory {tmp_path / 'copy'}\nreject .*secret.*\naccept .*\n"
        f"file_directories {tmp_path / 'there'}\n"
    )
    yield home
    here("stop", home)


def here(command: str, folder: Path, columns: int = 200) -> str:
    """What a command says, in this process: quicker, for those that start nothing."""
    found = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["pump", command, str(folder)])
    assert found.exit_code == 0, found.output
    return found.stdout


async def test_start_status_sanity_and_stop(
    folder: Path, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, copy = tmp_path / "there", tmp_path / "copy"
    make_tree(there, 6)
    started = run("pump", "start", folder)
    assert started.stdout.splitlines() == [
        "subscribe/s 1 started",
        "subscribe/s 2 started",
        "winnow/w started",
    ], started.stderr
    assert here("start", folder).count(" runs\n") == 3
    posts = settings(
        "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}",
        post_base_url=f"file:{there}/", post_base_dir=there, path=[there],
    )  # fmt: skip
    await post(posts)
    await until(lambda: tree(copy) == tree(there))
    winnow = read_conf(folder / "winnow" / "w.conf")
    await until(lambda: (found := read_status(winnow)) is not None and found.received == 8)
    assert "201:8" in here("status", folder)
    narrow = here("status", folder, columns=80)
    assert max(map(len, narrow.splitlines())) <= 80
    words = narrow.replace(",", "").split()
    assert {"subscribe/s", "winnow/w", "201:8", *FIGURES} <= set(words)
    current_status = read_status(winnow)
    assert current_status is not None
    os.kill(current_status.pid, signal.SIGKILL)
    await until(lambda: not current_status.running)
    assert "died" in here("status", folder)
    dialects = ["subscribe/s dialect v2 (option report_back)", "winnow/w dialect v2 (option queue)"]
    restarted = run("pump", "sanity", folder).stdout.splitlines()
    assert restarted == [*dialects, "winnow/w had died, started"]
    assert here("stop", folder).count(" stopped\n") == 3
    assert here("sanity", folder).splitlines() == dialects


async def test_what_the_first_component_announces_at_its_start_reaches_the_last(
    penstock: Penstock, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll announces all files at once, when the other components do not run yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    there, copy, home = tmp_path / "there", tmp_path / "copy", tmp_path / "conf"
    there.mkdir()
    for number in range(20):
        (there / f"file_{number}").write_text(f"{number}\n")
    url = f"amqp://guest:guest@127.0.0.1:{penstock.port}/"
    configurations = {
        "poll": f"post_broker {url}\npost_exchange x{name}0\npollUrl file:{there}\npath /\n",
        "shovel": f"broker {url}\nexchange x{name}0\nsubtopic #\npost_broker {url}\n"
        f"post_exchange x{name}1\n",
        "subscribe": f"broker {url}\nexchange x{name}1\nsubtopic #\ndirectory {copy}\n"
        "file_directories /\n",
    }
    for component, text in configurations.items():
        (home / component).mkdir(parents=True)
        (home / component / "t.conf").write_text(f"dialect sr3\n{text}")
    started = run("pump", "start", home)
    try:
        assert started.stdout.count(" started\n") == 3, started.stderr
        await until(lambda: len(tree(copy)) == 20)
    finally:
        here("stop", home)


def test_what_is_only_sarracenias_is_named_and_left_alone(tmp_path: Path) -> None:
    for component in ("audit", "winnow"):
        (tmp_path / component).mkdir()
        (tmp_path / component / "t.conf").write_text("broker amqp://h/\n")
    asked = CliRunner().invoke(app, ["pump", "status", str(tmp_path)])
    assert asked.exit_code == 0
    assert asked.stderr == "audit/t skipped: the broker's own monitoring replaces it\n"
    assert "winnow/t" in asked.stdout


def test_a_directory_without_configurations(tmp_path: Path) -> None:
    asked = CliRunner().invoke(app, ["pump", "status", str(tmp_path)])
    assert asked.exit_code == 2
    assert "no configurations" in asked.stderr


def test_one_that_cannot_start_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "sender").mkdir()
    (tmp_path / "sender" / "t.conf").write_text("broker amqp://h/\n")
    asked = run("pump", "start", tmp_path)
    assert asked.returncode == 2
    assert "sender/t is not declared yet: " in asked.stderr
    assert "sender/t ended during its start: see " in asked.stderr
