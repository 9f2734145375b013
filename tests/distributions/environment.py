"""Distributions that are built once, and virtual environments to install them into."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.paths import ROOT

#: Every package, in order of need.
PACKAGES: Final = (
    *("penstock", "penstock-store", "penstock-spark", "penstock-history", "penstock-hives"),
    *("penstock-jobs", "penstock-pump", "pytest-penstock"),
)
BUILDING_SECONDS: Final = 900


class Distribution(NamedTuple):
    wheel: Path
    source: Path


def build(project: Path, folder: Path, *targets: str) -> None:
    """Wheel and source distribution of a project, or one of them."""
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *words, "-d", str(folder)],
        cwd=project,
        check=True,
        capture_output=True,
        timeout=BUILDING_SECONDS,
    )


@cache
def build_all(folder: Path) -> dict[str, Distribution]:
    found = {}
    for package in PACKAGES:
        build(ROOT / "packages" / package, folder)
        stem = package.replace("-", "_")
        [wheel], [source] = folder.glob(f"{stem}-*.whl"), folder.glob(f"{stem}-*.tar.gz")
        found[package] = Distribution(wheel, source)
    return found


class Environment:
    """A virtual environment with wheels in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.python = folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        [found] = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def variables(self) -> dict[str, str]:
        ours = ("PYTHONPATH", "VIRTUAL_ENV")
        kept = {key: value for key, value in os.environ.items() if key not in ours}
        return kept | {"COLUMNS": "200"}

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILDING_SECONDS,
        )

    def install(self, *words: object) -> None:
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        done = self.run(*pip, *words)
        assert done.returncode == 0, done.stderr

    def install_with_dependencies(self, distribution: Path) -> None:
        """Our packages come from the folder of the distribution, all others from the index."""
        ours = ("--find-links", distribution.parent)
        done = self.run(ROOT / "scripts" / "install", self.folder, *ours, distribution)
        assert done.returncode == 0, done.stderr

    def penstock(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.folder / "bin" / "penstock", *words)
