"""Shells complete commands and options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.command import SECONDS, environment

PENSTOCK: Final = Path(sys.executable).with_name("penstock")


def completed(script: str, shell: str = "bash", **variables: str) -> str:
    done = subprocess.run(
        [shell, "-c", script],
        capture_output=True,
        text=True,
        env=environment() | variables,
        check=False,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("penstock us", "user"),
        ("penstock user topic-permissions ", "set clear list"),
        ("penstock broker --li", "--listen"),
    ],
)
def test_bash_completes_with_the_script_that_is_installed(words: str, found: str) -> None:
    script = f"""
        source <({PENSTOCK} --show-completion bash)
        COMP_WORDS=({words}{" ''" if words.endswith(" ") else ""})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        PATH={PENSTOCK.parent}:$PATH _penstock_completion penstock
        echo "${{COMPREPLY[@]}}"
    """
    assert completed(script).split() == found.split()


@pytest.mark.parametrize(
    ("shell", "variables", "found"),
    [
        ("zsh", {}, '"broker":"Run a broker'),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "broker\tRun a broker"),
    ],
)
def test_zsh_and_fish_get_commands_with_their_help(
    shell: str, variables: dict[str, str], found: str
) -> None:
    asked = {"_PENSTOCK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "penstock bro"}
    assert found in completed(str(PENSTOCK), "sh", **asked, **variables)
