"""Machines, as far as a deployer needs them. Every process has a folder, and two files in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from penstock.core.errors import PenstockError

#: What a process says, and what it complains about.
OUTPUT: Final = "output.log"
ERRORS: Final = "errors.log"

#: How long a process that was asked to end may take before it is made to.
GRACE_SECONDS: Final = 10.0


class DeploymentError(PenstockError):
    """A machine that cannot be reached, or will not do what it should."""


@dataclass(frozen=True, slots=True)
class Access:
    """How machines are reached, and where things are there."""

    home: str = "penstock-deployment"  #: the folder of a deployment; a relative one is the user's
    login: str = ""
    port: int = 22
    key: Path | None = None
    known_hosts: Path | None = None
    package: str = "penstock[content]"  #: what `install` installs: a name, a URL, or a file here
    program: tuple[str, ...] = ()  #: what stands for `penstock`; empty for the installed one
    python: str = "python3"  #: what `install` installs it with, there


class Place(Protocol):
    async def test(self) -> str:
        """That it can be reached: what kind of machine it says it is."""

    async def run(self, name: str, words: Sequence[str], text: str) -> None:
        """Run a command to its end in the folder of a process; it reads the text."""

    async def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process, with variables that no other process of the machine can read."""

    async def stop(self, name: str) -> None:
        """Ask a process to end, and everything it started; in the end, make it."""

    async def running(self, name: str) -> bool: ...

    async def read(self, name: str, file: str) -> bytes:
        """What a process has written so far."""

    async def install(self, package: str) -> None: ...

    async def uninstall(self) -> None: ...

    async def clean(self, everything: bool) -> None:
        """Remove what processes have written, or everything of the deployment."""

    async def close(self) -> None: ...
