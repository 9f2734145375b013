"""The machines of a deployment. Every process has a folder with two log files."""

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

OUTPUT_LOG: Final = "output.log"
ERROR_LOG: Final = "errors.log"

#: After SIGTERM a process has so long before SIGKILL.
GRACE_SECONDS: Final = 10.0


class DeploymentError(PenstockError):
    """A machine cannot be reached, or a command failed there."""


@dataclass(frozen=True, slots=True)
class MachineAccess:
    home: str = "penstock-deployment"  #: folder of the deployment; relative to the user's home
    login: str = ""
    port: int = 22
    key: Path | None = None
    known_hosts: Path | None = None
    package: str = "penstock"  #: to install: a name, a URL, or a local file
    program: tuple[str, ...] = ()  #: replaces the installed `penstock`
    python: str = "python3"  #: for `install`


class Machine(Protocol):
    async def test(self) -> str:
        """The name and release of its system."""

    async def run(self, name: str, words: Sequence[str], text: str) -> None:
        """Runs a command in the folder of a process, with the text as its input."""

    async def start(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts a process; other users cannot read the variables."""

    async def stop(self, name: str) -> None:
        """Stops a process and its descendants, by SIGTERM and then SIGKILL."""

    async def running(self, name: str) -> bool: ...

    async def read(self, name: str, file: str) -> bytes:
        """A log file of a process."""

    async def install(self, package: str) -> None: ...

    async def uninstall(self) -> None: ...

    async def clean(self, everything: bool) -> None:
        """Removes the logs of processes, or the whole deployment."""

    async def close(self) -> None: ...


class LocalMachine:
    """This machine, with its installed Penstock. Processes end with the deployment, even if that is
    killed (`guardian.py`)."""

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
        ending = asyncio.create_task(self._unwatch_ended(process, self._guardian))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)

    async def _unwatch_ended(
        self, process: asyncio.subprocess.Process, guardian: ChildGuardian
    ) -> None:
        await process.wait()
        guardian.unwatch(process.pid)

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
        """It is installed."""

    async def uninstall(self) -> None:
        """It stays installed."""

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
