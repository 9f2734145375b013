"""`penstock dashboards`, before it serves anything."""

from __future__ import annotations

import pytest

from tests.cli.command import run


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_without_a_gate_nobody_else_comes_in(host: str) -> None:
    said = run("dashboards", "--host", host, "--port", "0")
    assert said.returncode == 2
    assert f"--host {host}: without --gate" in said.stderr
    assert "--gate hives" in said.stderr
