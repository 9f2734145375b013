"""Every package builds a wheel and a source distribution with all that it brings.

`penstock` is installed from its wheel into an empty environment with its real dependencies. The
other packages are installed beside it, with the third-party libraries of this environment: what
they bring of their own has to be in their wheels. `test_installation.py` installs each of them with
its real dependencies.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.distributions.environment import (
    BUILDING_SECONDS,
    PACKAGES,
    Distribution,
    Environment,
    build,
)
from tests.paths import DATA_FILTER, ROOT

#: Package → a command of it, and what else has to be installed.
COMMANDS: Final = {
    "penstock-store": ("store --help", []),
    "penstock-spark": ("pipeline --help", []),
    "penstock-history": ("historian --help", ["penstock-store", "penstock-spark"]),
    "penstock-hives": ("hives --help", ["penstock-store", "penstock-spark"]),
    "penstock-jobs": ("job --help", ["penstock-store", "penstock-spark"]),
    "penstock-pump": ("pump --help", ["penstock-spark"]),
}
Distributions = dict[str, Distribution]


@pytest.fixture(scope="module")
def plain(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An empty environment with `penstock` and what it depends on."""
    environment = Environment(tmp_path_factory.mktemp("plain"))
    environment.install("-c", ROOT / "constraints.txt", distributions["penstock"].wheel)
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
    installed = plain.pip("list", "--format=freeze").split()
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
@pytest.mark.parametrize("package", COMMANDS)
def test_a_package_brings_its_command(
    distributions: Distributions, borrowing: Environment, package: str
) -> None:
    command, needs = COMMANDS[package]
    borrowing.install(
        "--no-deps", *(distributions[name].wheel for name in ("penstock", *needs, package))
    )
    shown = borrowing.penstock(*command.split())
    assert shown.returncode == 0, shown.stderr
    module = package.replace("-", "_")
    place = borrowing.run(borrowing.python, "-c", f"import {module}; print({module}.__file__)")
    assert str(borrowing.folder) in place.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_has_the_files_that_are_not_python(
    distributions: Distributions, package: str
) -> None:
    source = ROOT / "packages" / package / "src"
    data = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file()
        and path.suffix in (".html", ".css", ".js", ".svg", ".sql", ".json", ".lark", ".c")
    }
    assert data <= set(zipfile.ZipFile(distributions[package].wheel).namelist())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_source_distribution_builds_the_same_wheel(
    distributions: Distributions, package: str, tmp_path: Path
) -> None:
    with tarfile.open(distributions[package].source) as archive:
        archive.extraction_filter = DATA_FILTER
        archive.extractall(tmp_path)
    [project] = tmp_path.iterdir()
    again = build(project, tmp_path / "again")
    assert contents(again.wheel) == contents(distributions[package].wheel)
    assert list(project.glob("tests/**/test_*.py"))


def contents(wheel: Path) -> dict[str, int]:
    """Name → checksum. The list of files may have another order."""
    entries = zipfile.ZipFile(wheel).infolist()
    return {each.filename: each.CRC for each in entries if not each.filename.endswith("/RECORD")}
