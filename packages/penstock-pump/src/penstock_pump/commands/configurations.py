"""The configurations of a machine: a folder per component with `.conf` and `.toml` files.

A target is a directory of configurations, a component, `component/name`, or a file. Without a
target all configurations of the home are meant: `~/.config/sr3`, or v2's `~/.config/sarra`. A
disabled configuration has `.off` behind its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.core.errors import ConfigurationError
from penstock_pump.config.settings import Component

SUFFIXES: Final = (".conf", ".toml")
DISABLED: Final = ".off"
#: sr3's and v2's names of components that have another here.
ALIASES: Final = {"cpost": "post", "cpump": "shovel"}

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DIR | COMPONENT | COMPONENT/NAME | FILE]...", help="Default: all configurations."
    ),
]


@dataclass(frozen=True, slots=True)
class PumpConfiguration:
    path: Path

    @property
    def component(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(DISABLED).rpartition(".")[0]

    @property
    def is_enabled(self) -> bool:
        return not self.path.name.endswith(DISABLED)

    def __str__(self) -> str:
        return f"{self.component}/{self.name}"


def config_home() -> Path:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    only_v2 = (home / "sarra").is_dir() and not (home / "sr3").is_dir()
    return home / ("sarra" if only_v2 else "sr3")


def find_configurations(targets: Sequence[str] | None) -> list[PumpConfiguration]:
    """In order and without repetitions; a target without a configuration is an error."""
    home = config_home()
    found: dict[Path, PumpConfiguration] = {}
    for target in targets or [str(home)]:
        matches = list(_matching(target, home))
        if not matches:
            raise ConfigurationError(
                f"{target}: no configurations, as subscribe/weather.conf; the home is {home}"
            )
        found.update((each.path, each) for each in matches)
    return list(found.values())


def _matching(target: str, home: Path) -> Iterator[PumpConfiguration]:
    path = Path(target)
    if path.is_file():
        yield PumpConfiguration(path)
        return
    component, _, name = target.partition("/")
    if component in {*Component, *ALIASES} and not path.is_absolute():
        stem = name.removesuffix(".conf").removesuffix(".toml")
        yield from _files(home, component, stem or "*")
        if name or not path.is_dir():
            return
    yield from _files(path, "*", "*")


def _files(home: Path, component: str, stem: str) -> Iterator[PumpConfiguration]:
    for path in sorted(home.glob(f"{component}/{stem}.*")):
        if path.name.removesuffix(DISABLED).endswith(SUFFIXES):
            yield PumpConfiguration(path)
