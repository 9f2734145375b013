"""Commands on this machine, each in a process group of its own that ends with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.jobs.errors import CommandError
from penstock.jobs.shells.guardian import Guardian
from penstock.jobs.shells.reading import read_lines
from penstock.jobs.shells.shell import LINE_BYTES, Kept, Limits, Outcome

#: How long pipes may stay open when the command has ended: what it left behind may hold them.
_PIPES_SECONDS: Final = 2.0


class LocalShell:
    def __init__(self, place: Path | None = None) -> None:
        """Folders of work are made below `place`, or where temporary files are."""
        self._place = place
        self._guardian = Guardian()

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
    def __init__(self, place: Path, guardian: Guardian) -> None:
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
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> Outcome:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._place,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"cannot run {command[0]!r}: {error.strerror}") from error
        self._guardian.watch(str(process.pid))
        try:
            return await _attended(process, told, limits)
        finally:
            self._guardian.forget(str(process.pid))


async def _attended(
    process: asyncio.subprocess.Process, told: Callable[[str], None], limits: Limits
) -> Outcome:
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = Kept(), Kept()
    pipes = asyncio.gather(
        read_lines(process.stdout, output, told), read_lines(process.stderr, errors)
    )
    reason = ""
    try:
        reason = await _ended(process, limits)
    except asyncio.CancelledError:
        await _end(process, limits.grace)
        raise
    finally:
        _signal(process, signal.SIGKILL)  # whatever it has left behind in its group
        with suppress(TimeoutError):
            await asyncio.wait_for(pipes, _PIPES_SECONDS)
    assert process.returncode is not None
    return Outcome(process.returncode, output.text, errors.text, reason)


async def _ended(process: asyncio.subprocess.Process, limits: Limits) -> str:
    """Wait for its end, or bring it about; why it had to be."""
    first = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
    try:
        await asyncio.wait_for(process.wait(), first)
    except TimeoutError:
        grace = limits.grace
        if limits.soft is not None and limits.hard is not None:
            grace = max(limits.hard - limits.soft, 0.0)
        elif limits.soft is None:
            grace = 0.0
        await _end(process, grace)
        return f"ended after {first:g} seconds"
    return ""


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    """Ask it to end, and end it when it has not after a while."""
    _signal(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To it and to everything it has started that stayed in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
