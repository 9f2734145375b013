"""Commands on this machine, each below a reaper that ends all its descendants (`reaper.py`)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Final

from penstock_jobs.errors import CommandError
from penstock_jobs.shells.cleanup import CleanupProcess
from penstock_jobs.shells.reaper import reaper_command
from penstock_jobs.shells.shell import (
    GRACE_SECONDS,
    CommandOutcome,
    OutputTail,
    read_lines,
    wait_or_end,
)

#: How long the pipes are read after the command has ended: its descendants may hold them open.
_PIPES_SECONDS: Final = 2.0


class LocalShell:
    def __init__(self, parent: Path | None = None, *, grace: float | None = GRACE_SECONDS) -> None:
        """Folders are created below `parent`, by default the directory for temporary files. `grace`
        is between the request to end and the kill; None: killed only when cancelled again."""
        self._parent = parent
        self._grace = grace
        self._cleanup: CleanupProcess | None = None

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[LocalFolder]:
        cleanup = self._cleanup = self._cleanup or CleanupProcess()
        path = Path(tempfile.mkdtemp(prefix="penstock-job-", dir=self._parent))
        cleanup.watch(str(path))
        try:
            yield LocalFolder(path, cleanup, self._grace)
        finally:
            await asyncio.to_thread(shutil.rmtree, path, True)
            cleanup.forget(str(path))

    async def close(self) -> None:
        if self._cleanup is not None:
            await asyncio.to_thread(self._cleanup.close)
            self._cleanup = None


class LocalFolder:
    def __init__(self, path: Path, cleanup: CleanupProcess, grace: float | None) -> None:
        self._path = path
        self._cleanup = cleanup
        self._grace = grace

    @property
    def path(self) -> str:
        return str(self._path)

    async def write(self, name: str, content: bytes) -> str:
        target = self._path / name
        await asyncio.to_thread(_write, target, content)
        return str(target)

    async def read(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread((self._path / name).read_bytes)
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror}") from error

    async def run(
        self,
        command: Sequence[str],
        on_line: Callable[[str], None] = lambda _: None,
        on_error_line: Callable[[str], None] = lambda _: None,
    ) -> CommandOutcome:
        output_tail, error_tail = OutputTail(), OutputTail()
        async with _pipe() as (output, to_output), _pipe() as (errors, to_errors):
            control, reaper_control = socket.socketpair()
            with control, reaper_control:
                try:
                    process = await asyncio.create_subprocess_exec(
                        *reaper_command(command, reaper_control.fileno()),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=to_output,
                        stderr=to_errors,
                        cwd=self._path,
                        start_new_session=True,
                        pass_fds=[reaper_control.fileno()],
                    )
                except OSError as error:
                    raise CommandError(f"cannot run {command[0]!r}: {error.strerror}") from error
                for given in (to_output, to_errors, reaper_control):
                    given.close()  # the command has its own copies
                self._cleanup.watch(str(process.pid))
                try:
                    pipes = asyncio.gather(
                        read_lines(output.read, output_tail, on_line),
                        read_lines(errors.read, error_tail, on_error_line),
                    )
                    await _wait(process, control, pipes, self._grace)
                finally:
                    self._cleanup.forget(str(process.pid))
                if number := control.recv(16):
                    cause = os.strerror(int(number))
                    raise CommandError(f"cannot run {command[0]!r}: {cause}")
                assert process.returncode is not None
                return CommandOutcome(process.returncode, output_tail.text, error_tail.text)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """Not asyncio's own pipe, which delays the end of a process until all its descendants have
    closed the pipe."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    with os.fdopen(write, "wb") as writer:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
        )
        try:
            yield reader, writer
        finally:
            transport.close()


async def _wait(
    process: asyncio.subprocess.Process,
    control: socket.socket,
    pipes: asyncio.Future[tuple[None, None]],
    grace: float | None,
) -> None:
    def ask() -> None:
        with suppress(BrokenPipeError):
            control.send(b"T")

    def kill() -> None:
        with suppress(OSError):  # it has ended
            control.shutdown(socket.SHUT_WR)

    try:
        await wait_or_end(process.wait, ask, kill, grace)
    finally:
        kill()  # what is left
        with suppress(TimeoutError):
            await asyncio.wait_for(pipes, _PIPES_SECONDS)


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
