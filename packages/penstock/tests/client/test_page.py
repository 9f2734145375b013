"""The programs of README and `docs/client.md`, as somebody who copies them runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.peers import Penstock

#: Runs a program that may await outside of functions, as the prompt of `python -m asyncio` does.
RUN = """
import ast, asyncio, inspect, sys
code = compile(sys.stdin.read(), "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
found = eval(code)
if inspect.iscoroutine(found):
    asyncio.run(found)
"""


def programs(page: str) -> list[str]:
    """Examples that import what they use, and so stand alone."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [example for example in examples if re.match(r"import |from ", example)]


@pytest.mark.parametrize(
    "program", [program for page in ("README.md", "docs/client.md") for program in programs(page)]
)
def test_a_program_of_the_page_runs_alone(program: str, penstock: Penstock, tmp_path: Path) -> None:
    there = program.replace("amqp://localhost", penstock.url.removesuffix("/%2F"))
    ran = subprocess.run(
        [sys.executable, "-c", RUN],
        input=there,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == re.findall(r"print\(.*# (\d+)", program) or "addresses" in program
