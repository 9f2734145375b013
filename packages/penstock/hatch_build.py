"""Adds the documentation site to the distributions, if `make docs` has built it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SiteBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        site = Path(self.root).parents[1] / "build" / "site"
        if version != "editable" and (site / "index.html").is_file():
            folder = "penstock/site" if self.target_name == "wheel" else "src/penstock/site"
            build_data["force_include"][str(site)] = folder
