"""`penstock --help` is a map of the product."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import __version__
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
    shown = run(name, "--help")
    assert shown.returncode == 0
    assert f"Usage: penstock {name}" in shown.stdout


def test_version() -> None:
    assert run("version").stdout.startswith(f"penstock {__version__} on Python 3.")


def test_a_command_that_is_not_there_is_exit_status_2() -> None:
    asked = run("brokr")
    assert asked.returncode == 2
    assert "No such command 'brokr'" in asked.stderr


@pytest.mark.parametrize("heavy", ["aio_pika", "httpx", "numpy", "pyarrow"])
def test_a_broker_does_not_carry_what_only_others_need(heavy: str) -> None:
    code = (
        "import sys, penstock.cli.map as map, penstock.cli.broker, penstock.server.broker, "
        f"penstock.server.management.management; sys.exit({heavy!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0
