"""The site's configuration: checked as a whole, and what is wrong is told by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigurationError
from penstock_hives.server.configuration import read_configuration

FLAGS: dict[str, dict[str, Any]] = {
    "engine": {"port": 0, "workers": None},
    "application": {"database": "postgresql:///x"},
}


def test_flags_come_before_the_file_and_the_file_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        "[engine]\nport = 9000\nworkers = 3\n[site]\nrefresh = 5\n[application]\npool_size = 3\n"
    )
    settings = read_configuration(file, FLAGS)
    assert (settings.port, settings.workers) == (0, 3)
    assert settings.options["refresh"] == 5
    assert settings.options["application"] == {"pool_size": 3, "database": "postgresql:///x"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[engine]\nworkers = 0", "workers"),
        ("[engine]\nwokers = 2", "wokers"),
        ("[site]\nrefresh = -1", "refresh"),
        ("[application]\npool_size = 'many'", "pool_size"),
        ("[application]\npool = 3", "pool"),
        ("[identity]\nissuer = 'nobody'", "issuer"),
        ("[garden]\nroses = 3", "garden"),
        ("engine = 3", "engine"),
        ("[engine", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_by_name(text: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=named):
        read_configuration(file, FLAGS)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_configuration(tmp_path / "nowhere.toml", FLAGS)
