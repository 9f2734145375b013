"""`penstock config` shows every setting, its value, and where it came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.core.config import list_settings
from tests.cli.command import environment, run


def test_every_setting_is_shown_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[broker]\nchannel_max = 7\n")
    shown = run(
        *("config", "--json", "--set", "broker.frame_max=8KiB"),
        cwd=tmp_path,
        env=environment(PENSTOCK_LOG__LEVEL="debug"),
    )
    told = json.loads(shown.stdout)
    assert set(told) == set(list_settings())
    assert told["broker.channel_max"] == {
        "value": 7,
        "source": f"file {tmp_path / 'penstock.toml'}",
    }
    assert told["broker.frame_max"] == {"value": 8192, "source": "flag --set"}
    assert told["log.level"] == {"value": "debug", "source": "environment PENSTOCK_LOG__LEVEL"}
    assert told["broker.heartbeat"]["source"] == "default"


def test_the_table_is_for_people(tmp_path: Path) -> None:
    shown = run("config", "--explain", "--set", "broker.heartbeat=2m", cwd=tmp_path)
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("broker.heartbeat")]
    assert "2m" in line
    assert "flag --set" in line
    assert "Heartbeat interval in seconds" in line


def test_changed_leaves_the_defaults_out(tmp_path: Path) -> None:
    shown = run("config", "--changed", "--set", "broker.heartbeat=30", cwd=tmp_path)
    assert len(shown.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("[broker]\nheartbeat = 'soon'", "penstock.toml: broker.heartbeat = 'soon': should be a"),
        ("[broker]\nheartbeet = 1", "did you mean broker.heartbeat?"),
        ("[broker", "is not TOML"),
    ],
)
def test_a_bad_file_is_exit_status_2_and_one_line(file: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(file)
    shown = run("config", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    shown = run("config", cwd=tmp_path, env=environment(PENSTOCK_LOG__LEVEL="loud"))
    assert shown.returncode == 2
    assert "environment PENSTOCK_LOG__LEVEL: log.level = 'loud'" in shown.stderr


def test_a_bad_flag_is_named(tmp_path: Path) -> None:
    shown = run("config", "--set", "broker.channel_max=0", cwd=tmp_path)
    assert shown.returncode == 2
    assert "flag --set: broker.channel_max = '0'" in shown.stderr


def test_passwords_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[broker.overlay]\npassword = "lovelace"\nneighbours = ["padres://ada:byron@host/B2"]\n'
    )
    for words in (["config"], ["config", "--json"], ["config", "--changed", "--explain"]):
        shown = run(*words, cwd=tmp_path)
        assert "lovelace" not in shown.stdout
        assert "byron" not in shown.stdout
        assert "padres://ada:***@host/B2" in "".join(shown.stdout.split())


def test_a_mistake_is_told_without_the_password_in_it(tmp_path: Path) -> None:
    said = run(
        *("config", "--set", "broker.listen=amqp://ada:lovelace@127.0.0.1"),
        cwd=tmp_path,
    )
    assert said.returncode == 2
    assert "lovelace" not in said.stderr
