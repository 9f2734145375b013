"""Machines, as far as a deployer needs them. Every process has a folder, and two files in it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from penstock.cli.up.guardian import ChildGuardian
from penstock.core.errors import PenstockError

#: What a process says, and what it complains about.
OUTPUT_LOG: Final = "output.log"
ERROR_LOG: Final = "errors.log"

#: How long a process that was asked to end may take before it is made to.
GRACE_SECONDS: Final = 10.0


class DeploymentError(PenstockError):
    """A machine that cannot be reached, or will not do what it should."""


@dataclass(frozen=True, slots=True)
class MachineAccess:
    """How machines are reached, and where things are there."""

    home: str = "penstock-deployment"  #: the folder of a deployment; a relative one is the user's
    login: str = ""
    port: int = 22
    key: Path | None = None
    known_hosts: Path | None = None
    package: str = "penstock"  #: what `install` installs: a name, a URL, or a file here
    program: tuple[str, ...] = ()  #: what stands for `penstock`; empty for the installed one
    python: str = "python3"  #: what `install` installs it with, there


class Machine(Protocol):
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


# This machine: processes of our own, which are Penstock's as it is installed here.
#
# They end with the deployment, also if that is killed (`guardian.py`).


class LocalMachine:
    def __init__(self, access: MachineAccess) -> None:
        self._home = Path(access.home).expanduser().resolve()
        self._program = access.program or (sys.executable, "-m", "penstock")
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._guardian: ChildGuardian | None = None
        self._ends: set[asyncio.Task[None]] = set()

    async def test(self) -> str:
        return f"{platform.system()} {platform.release()}"

    async def run(self, name: str, words: Sequence[str], text: str) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._program_of(words),
                *words[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._folder(name),
            )
        except OSError as error:
            raise DeploymentError(f"{name}: cannot run {words[0]!r}: {error.strerror}") from None
        _, errors = await process.communicate(text.encode())
        if process.returncode:
            raise DeploymentError(f"{name}: {' '.join(words)}: {errors.decode().strip()}")

    def _program_of(self, words: Sequence[str]) -> Sequence[str]:
        return self._program if words[0] == "penstock" else (words[0],)

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        folder, program = self._folder(name), self._program_of(words)
        if self._guardian is None:
            self._guardian = ChildGuardian()
        with (folder / OUTPUT_LOG).open("ab") as output, (folder / ERROR_LOG).open("ab") as errors:
            try:
                process = await asyncio.create_subprocess_exec(
                    *program,
                    *words[1:],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    cwd=folder,
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise DeploymentError(
                    f"{name}: cannot run {words[0]!r}: {error.strerror}"
                ) from None
        self._processes[name] = process
        self._guardian.watch(process.pid, GRACE_SECONDS)
        ending = asyncio.create_task(self._forget(process, self._guardian))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)

    async def _forget(self, process: asyncio.subprocess.Process, guardian: ChildGuardian) -> None:
        await process.wait()
        guardian.forget(process.pid)

    async def stop(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None or process.returncode is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def running(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.returncode is None

    async def read(self, name: str, file: str) -> bytes:
        path = self._home / name / file
        return path.read_bytes() if path.exists() else b""

    async def install(self, package: str) -> None:
        """It is here: it is what asks."""

    async def uninstall(self) -> None:
        """And it stays."""

    async def clean(self, everything: bool) -> None:
        if everything:
            shutil.rmtree(self._home, ignore_errors=True)
            return
        for file in (OUTPUT_LOG, ERROR_LOG):
            for path in self._home.glob(f"*/{file}"):
                path.unlink()

    async def close(self) -> None:
        for name in list(self._processes):
            await self.stop(name)
        await asyncio.gather(*self._ends)
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None
