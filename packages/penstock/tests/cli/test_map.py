"""`penstock --help` is a map of the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli import app
from penstock.cli.map import COMMANDS
from tests.cli.command import environment, run


def test_without_a_word_it_shows_the_map() -> None:
    shown = run()
    for heading, commands in COMMANDS.items():
        assert f" {heading} " in shown.stdout + shown.stderr
        for name in commands:
            assert f" {name} " in shown.stdout + shown.stderr


@pytest.mark.parametrize("name", [name for section in COMMANDS.values() for name in section])
def test_every_command_explains_itself(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], prog_name="penstock", env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert f"Usage: penstock {name}" in shown.stdout


def test_version() -> None:
    assert run("version").stdout.startswith(f"penstock {__version__} on Python 3.")


def test_a_command_that_is_not_there_is_exit_status_2() -> None:
    asked = run("brokr")
    assert asked.returncode == 2
    assert "No such command 'brokr'" in asked.stderr


def test_a_broker_does_not_carry_what_only_others_need() -> None:
    code = (
        "import sys, penstock.cli.map, penstock.cli.broker, penstock.server.broker, "
        "penstock.server.management.server; "
        "print(*{'aio_pika', 'httpx', 'numpy', 'pyarrow'} & set(sys.modules))"
    )
    python = [sys.executable, "-c", code]
    loaded = subprocess.run(python, env=environment(), check=True, capture_output=True, text=True)
    assert loaded.stdout.strip() == ""


def test_a_module_that_is_not_installed_is_said_with_what_brings_it() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from penstock.cli import app; "
        "app(['pipeline', 'run'], prog_name='penstock')"
    )
    python = [sys.executable, "-c", code]
    asked = subprocess.run(python, env=environment(), check=False, capture_output=True, text=True)
    assert asked.returncode == 2
    assert asked.stderr.startswith("penstock: pyspark is not installed: pip install pyspark")
    assert "Traceback" not in asked.stderr


@pytest.mark.parametrize("command", ["run", "once", "replay", "compact"])
def test_without_java_the_pipeline_says_what_to_install(tmp_path: Path, command: str) -> None:
    home = environment(JAVA_HOME=str(tmp_path))
    asked = run("pipeline", command, "--data", tmp_path / "data", env=home)
    assert asked.returncode == 2
    assert asked.stderr.startswith("penstock: Spark needs Java 17 or later: install it")
    assert "Traceback" not in asked.stderr
