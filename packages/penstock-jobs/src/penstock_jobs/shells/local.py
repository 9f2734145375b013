"""Commands on this machine, each below a reaper, which ends all it has started (`reaper.py`)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Final

from penstock_jobs.errors import CommandError
from penstock_jobs.shells.cleanup import CleanupProcess
from penstock_jobs.shells.reaper import reaper_command
from penstock_jobs.shells.shell import (
    CommandOutcome,
    OutputTail,
    TimeLimits,
    read_lines,
    wait_within_limits,
)

#: How long pipes may stay open when the command has ended: what it left behind may hold them.
_PIPES_SECONDS: Final = 2.0


class LocalShell:
    def __init__(self, place: Path | None = None) -> None:
        """Folders of work are made below `place`, or where temporary files are."""
        self._place = place
        self._guardian = CleanupProcess()

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[LocalFolder]:
        path = Path(tempfile.mkdtemp(prefix="penstock-job-", dir=self._place))
        self._guardian.watch(str(path))
        try:
            yield LocalFolder(path, self._guardian)
        finally:
            await asyncio.to_thread(shutil.rmtree, path, True)
            self._guardian.forget(str(path))

    async def close(self) -> None:
        await asyncio.to_thread(self._guardian.close)


class LocalFolder:
    def __init__(self, place: Path, guardian: CleanupProcess) -> None:
        self._place = place
        self._guardian = guardian

    @property
    def path(self) -> str:
        return str(self._place)

    async def write(self, name: str, content: bytes) -> str:
        target = self._place / name
        await asyncio.to_thread(_write, target, content)
        return str(target)

    async def read(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread((self._place / name).read_bytes)
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror}") from error

    async def run(
        self,
        command: Sequence[str],
        told: Callable[[str], None] = lambda _: None,
        limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
    ) -> CommandOutcome:
        async with _pipe() as (output, to_output), _pipe() as (errors, to_errors):
            orders, their_orders = socket.socketpair()
            with orders, their_orders:
                try:
                    process = await asyncio.create_subprocess_exec(
                        *reaper_command(command, their_orders.fileno()),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=to_output,
                        stderr=to_errors,
                        cwd=self._place,
                        start_new_session=True,
                        pass_fds=[their_orders.fileno()],
                    )
                except OSError as error:
                    raise CommandError(f"cannot run {command[0]!r}: {error.strerror}") from error
                for given in (to_output, to_errors, their_orders):
                    given.close()  # the command has them now, and its end is to be theirs
                self._guardian.watch(str(process.pid))
                try:
                    ended = await _attended(process, orders, output, errors, told, limits)
                finally:
                    self._guardian.forget(str(process.pid))
                if number := orders.recv(16):
                    reason = os.strerror(int(number))
                    raise CommandError(f"cannot run {command[0]!r}: {reason}")
                return ended


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """Our own and not asyncio's, for which a process has not ended before its pipes have: what a
    command leaves behind may hold them for as long as it likes."""
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


async def _attended(
    process: asyncio.subprocess.Process,
    orders: socket.socket,
    from_output: asyncio.StreamReader,
    from_errors: asyncio.StreamReader,
    told: Callable[[str], None],
    limits: TimeLimits,
) -> CommandOutcome:
    output, errors = OutputTail(), OutputTail()
    pipes = asyncio.gather(
        read_lines(from_output.read, output, told), read_lines(from_errors.read, errors)
    )
    try:
        reason = await wait_within_limits(limits, process.wait, partial(_end, process, orders))
    finally:
        orders.shutdown(socket.SHUT_WR)  # what has not ended is ended now
        with suppress(TimeoutError):
            await asyncio.wait_for(pipes, _PIPES_SECONDS)
    assert process.returncode is not None
    return CommandOutcome(process.returncode, output.text, errors.text, reason)


async def _end(process: asyncio.subprocess.Process, orders: socket.socket, grace: float) -> None:
    """Ask it to end, and end it when it has not after a while."""
    with suppress(BrokenPipeError):
        orders.send(b"T")
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        orders.shutdown(socket.SHUT_WR)
        await process.wait()


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
