"""A worker's place: the process in it at the moment, and another one when that dies.

A process that dies is replaced after a pause, short at first and longer each time; one that was
well for a while starts anew with the short one. A process that falls silent has a loop that stands
still, which nothing but a signal ends. Retired, the process drains, or is killed when it does not
end in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.hives.app.engine import worker
from penstock.hives.app.engine.settings import EngineSettings

log = get_logger(__name__)

#: Beyond linger and drain, what a process may take to end.
GRACE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pauses:
    """Between a process that died and the next: doubling, from the first to the longest."""

    first: float = 0.5
    longest: float = 30.0
    #: Seconds after which a process counts as having been well.
    well: float = 60.0


class Seat:
    """One worker, kept running until it is retired."""

    def __init__(
        self,
        number: int,
        settings: EngineSettings,
        listener: socket.socket,
        pauses: Pauses,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number = number
        self.pid: int | None = None
        self.restarts = 0
        self.ready = asyncio.Event()  #: set when a process in it serves
        self._settings = settings
        self._listener = listener
        self._pauses = pauses
        self._clock = clock
        self._retired = asyncio.Event()

    def retire(self) -> None:
        self._retired.set()

    async def keep(self) -> None:
        """Returns when the seat is retired and empty; raises if no process could ever run."""
        pause = self._pauses.first
        while not self._retired.is_set():
            began = self._clock()
            status = await self._once()
            if self._retired.is_set():
                return
            if status == worker.HOPELESS:
                raise ConfigurationError("the worker cannot run, for the reason it gave")
            if self._clock() - began > self._pauses.well:
                pause = self._pauses.first
            self.restarts += 1
            log.warning("worker ended", worker=self.number, status=status, again_in=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._retired.wait(), pause)
            pause = min(2 * pause, self._pauses.longest)

    async def _once(self) -> int:
        """One process, from its start to its end; its exit status."""
        process = await self._begin()
        self.pid = process.pid
        listening = asyncio.create_task(self._listen(process))
        ended = asyncio.create_task(process.wait())
        retired = asyncio.create_task(self._retired.wait())
        try:
            await asyncio.wait({ended, retired}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._drain(process, ended)
            return await ended
        finally:
            self.pid = None
            self.ready.clear()
            for task in (listening, retired):
                task.cancel()
            if process.returncode is None:  # cancelled: leave no orphan behind
                process.kill()

    async def _begin(self) -> asyncio.subprocess.Process:
        fd = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", worker.__name__, str(fd)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(fd,),
            # Ctrl-C in the terminal is for the master, which drains its workers.
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # one that died at once has a status
            process.stdin.write(self._settings.model_dump_json().encode() + b"\n")
            await process.stdin.drain()
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        patience = self._settings.start
        while True:
            try:
                line = await asyncio.wait_for(process.stdout.readline(), patience)
            except TimeoutError:
                log.error("worker fell silent", worker=self.number, pid=process.pid)
                process.kill()
                return
            if not line:
                return
            if line.decode(errors="replace").strip() == worker.READY:
                patience = self._settings.silence
                self.ready.set()

    async def _drain(self, process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        process.terminate()
        settings = self._settings
        try:
            most = settings.linger + settings.drain + GRACE
            await asyncio.wait_for(asyncio.shield(ended), most)
        except TimeoutError:
            log.error("worker did not drain; killed", worker=self.number, pid=process.pid)
            process.kill()
