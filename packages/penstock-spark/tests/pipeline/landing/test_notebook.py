"""The page `docs/notebook.md` does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest

from penstock.wire.amqp091.address import parse_amqp_url
from tests.paths import ROOT
from tests.peers import Penstock


def test_the_notebook_draws_its_plot(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpl.use("svg")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/notebook.md").read_text(), re.S)
    amqp, mqtt = parse_amqp_url(penstock.url).port, penstock.mqtt_port
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(code.replace("5672", str(amqp)).replace("1883", str(mqtt)), found)
    drawn = (tmp_path / "reports.svg").read_text()
    assert all(f">{each}<" in drawn or f"<!-- {each} -->" in drawn for each in ("s0", "s1", "s2"))
    assert len(found["frame"]) == 300  # type: ignore[arg-type]
