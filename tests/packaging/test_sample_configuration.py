"""The sample configurations hold settings that exist, with values that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.config_sources import load_settings
from tests.paths import ROOT


@pytest.mark.parametrize(
    "sample", sorted((ROOT / "packaging" / "config").glob("*.toml")), ids=lambda path: path.stem
)
def test_a_sample_is_accepted(sample: Path) -> None:
    settings = load_settings({}, {}, sample).settings
    assert settings.broker.listen
