"""Distributions that are built once, and virtual environments to install them into."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from hatchling.build import build_sdist, build_wheel

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


def build(project: Path, folder: Path) -> Distribution:
    """The wheel and the source distribution of a project."""
    folder.mkdir(exist_ok=True)
    with chdir(project):
        wheel, source = build_wheel(str(folder)), build_sdist(str(folder))
    return Distribution(folder / wheel, folder / source)


@cache
def build_all(folder: Path) -> dict[str, Distribution]:
    return {package: build(ROOT / "packages" / package, folder) for package in PACKAGES}


class Environment:
    """A virtual environment with wheels in it."""

    def __init__(self, folder: Path, *, with_pip: bool = False) -> None:
        venv.create(folder, with_pip=with_pip)
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

    def pip(self, *words: object) -> str:
        """The output of this environment's pip: to install it would take longer than the tests."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        done = self.run(*pip, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, *words: object) -> None:
        self.pip("install", "--quiet", "--no-compile", *words)

    def install_with_dependencies(self, distribution: Path) -> None:
        """Our packages come from the folder of the distribution, all others from the index."""
        ours = ("--find-links", distribution.parent)
        done = self.run(ROOT / "scripts" / "install", self.folder, *ours, distribution)
        assert done.returncode == 0, done.stderr

    def penstock(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.folder / "bin" / "penstock", *words)
