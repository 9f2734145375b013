"""Every package builds a wheel that works when it is installed.

`penstock` is installed from its wheel into an empty environment with its real dependencies. The
other packages are installed beside it, with the third-party libraries of this environment: what
they bring of their own has to be in their wheels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

#: Package → a command of it, and what else has to be installed.
PACKAGES: Final = {
    "penstock-store": ("store --help", []),
    "penstock-spark": ("pipeline --help", []),
    "penstock-history": ("historian --help", ["penstock-store", "penstock-spark"]),
    "penstock-hives": ("hives --help", ["penstock-store", "penstock-spark"]),
    "penstock-jobs": ("job --help", ["penstock-store", "penstock-spark"]),
    "penstock-pump": ("pump --help", ["penstock-spark"]),
}
BUILDING_SECONDS: Final = 600


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

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [*map(str, command)],
            cwd=self.folder,
            env=clean | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILDING_SECONDS,
        )

    def install(self, *words: object) -> None:
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        done = self.run(*pip, *words)
        assert done.returncode == 0, done.stderr

    def penstock(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.folder / "bin" / "penstock", *words)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    built = {}
    for package in ("penstock", *PACKAGES, "pytest-penstock"):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "hatchling",
                "build",
                "-t",
                "wheel",
                "-d",
                str(folder / package),
            ],
            cwd=ROOT / "packages" / package,
            check=True,
            capture_output=True,
            timeout=BUILDING_SECONDS,
        )
        [built[package]] = (folder / package).glob("*.whl")
    return built


@pytest.fixture(scope="module")
def plain(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An empty environment with `penstock` and what it depends on."""
    environment = Environment(tmp_path_factory.mktemp("plain"))
    environment.install("-c", ROOT / "constraints.txt", wheels["penstock"])
    return environment


@pytest.fixture
def borrowing(tmp_path: Path) -> Environment:
    """An environment that finds third-party libraries here, but none of our packages."""
    environment = Environment(tmp_path / "borrowing")
    here = sysconfig.get_path("purelib")
    (environment.site_packages / "borrowed.pth").write_text(f"{here}\n")
    return environment


@pytest.mark.timeout(BUILDING_SECONDS)
def test_a_plain_installation_has_few_dependencies_and_runs_a_broker(
    plain: Environment, tmp_path: Path
) -> None:
    installed = plain.run(plain.python, "-m", "pip", "list", "--format=freeze").stdout.split()
    assert not {"pyspark", "fastapi", "nicegui", "firebase-admin"} & {
        each.partition("==")[0] for each in installed
    }
    listen = ("--listen", "amqp://127.0.0.1:0", "--listen", "mqtt://127.0.0.1:0")
    command = [str(plain.folder / "bin" / "penstock"), "broker", "--data", str(tmp_path), *listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        broker.terminate()
    assert ready.startswith("penstock broker ready: amqp://127.0.0.1:")
    assert broker.returncode == 0


@pytest.mark.timeout(BUILDING_SECONDS)
def test_a_command_of_a_package_that_is_not_there_is_not_listed(plain: Environment) -> None:
    assert " pump " not in plain.penstock("--help").stdout
    assert plain.penstock("pump").returncode == 2


@pytest.mark.timeout(BUILDING_SECONDS)
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_brings_its_command(
    wheels: dict[str, Path], borrowing: Environment, package: str
) -> None:
    command, needs = PACKAGES[package]
    borrowing.install("--no-deps", *(wheels[name] for name in ("penstock", *needs, package)))
    shown = borrowing.penstock(*command.split())
    assert shown.returncode == 0, shown.stderr
    module = package.replace("-", "_")
    place = borrowing.run(borrowing.python, "-c", f"import {module}; print({module}.__file__)")
    assert str(borrowing.folder) in place.stdout


@pytest.mark.parametrize("package", ["penstock", *PACKAGES, "pytest-penstock"])
def test_a_wheel_has_the_files_that_are_not_python(wheels: dict[str, Path], package: str) -> None:
    source = ROOT / "packages" / package / "src"
    data = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file()
        and path.suffix in (".html", ".css", ".js", ".sql", ".json", ".lark", ".c")
    }
    assert data <= set(zipfile.ZipFile(wheels[package]).namelist())
