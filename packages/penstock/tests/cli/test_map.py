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


#: Modules that a broker does without until somebody needs them.
NOT_OF_A_BROKER = {
    *("aio_pika", "argon2", "asyncssh", "decimal", "email", "fastapi", "http.client", "httpx"),
    *("importlib.metadata", "mimetypes", "numpy", "penstock.client", "penstock.protocols.amqp10"),
    *("prometheus_client", "prompt_toolkit", "pyarrow", "pydantic", "rich", "structlog"),
    *("tempfile", "uvicorn", "websockets"),
}


def test_a_broker_does_not_carry_what_only_others_need(tmp_path: Path) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
        "from penstock.cli import app; app(sys.argv[1:], prog_name='penstock')"
    )
    listen = [
        argument
        for scheme in ("amqp", "mqtt", "ws", "padres", "http")
        for argument in ("--listen", f"{scheme}://127.0.0.1:0")
    ]
    broker = ["broker", "--data", str(tmp_path), *listen, "--stop-with-stdin"]
    python = [sys.executable, "-c", code, *broker]
    run = subprocess.run(
        python,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    ready, loaded = run.stdout.splitlines()
    assert ready.startswith("penstock broker ready")
    assert NOT_OF_A_BROKER & set(loaded.split()) == set()


def test_the_help_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules['asyncssh'] = sys.modules['pyarrow'] = None; "
        "from penstock.cli import app; app(['--help'], prog_name='penstock')"
    )
    python = [sys.executable, "-c", code]
    run = subprocess.run(python, env=environment(), check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


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


@pytest.mark.parametrize("command", ["run", "once", "replay"])
def test_without_java_the_pipeline_says_what_to_install(tmp_path: Path, command: str) -> None:
    home = environment(JAVA_HOME=str(tmp_path))
    asked = run("pipeline", command, "--data", tmp_path / "data", env=home)
    assert asked.returncode == 2
    assert asked.stderr.startswith("penstock: Spark needs Java 17 or later: install it")
    assert "Traceback" not in asked.stderr
