"""Configuration and data files of the pages, read by the programs that they are for."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any


def check_file(language: str, text: str, folder: Path) -> None:
    """Raises if the program refuses the file."""
    if language == "json":
        json.loads(text)
        return
    file = folder / "block.toml"
    file.write_text(text)
    given = tomllib.loads(text)
    if "project" in given:
        _check_entry_points(given["project"]["entry-points"])
    elif "tables" in given:
        from penstock_spark.landing.settings import load_configuration

        load_configuration(file)
    elif given.keys() & {"engine", "site", "application", "identity"}:
        from penstock_hives.server.configuration import read_configuration

        read_configuration(file, {})
    elif isinstance(given.get("broker"), dict):
        from penstock.core.config_sources import load_settings

        load_settings({}, file=file)
    else:
        from penstock_pump.config.settings import read_toml

        read_toml(file, {} if "component" in given else {"component": "subscribe"})


def _check_entry_points(groups: dict[str, Any]) -> None:
    known = {"penstock.console", "penstock.dashboards", "penstock.commands", "penstock.up"}
    assert groups.keys() <= known, f"no program reads {sorted(groups.keys() - known)}"
    assert all(":" in value for entries in groups.values() for value in entries.values())
