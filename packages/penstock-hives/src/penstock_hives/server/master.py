"""The master: it has the socket and the configuration, and workers that do the work.

    await Master(read).run(stop, reload, lambda url: print(url))

`read` gives the whole configuration, checked, or raises `ConfigurationError`. On `reload` it is
read again and a new *generation* of workers is started with it, on the same socket and with the
code as it is on disk then. When all of them serve, the old ones drain. If the configuration is
wrong, or the new workers do not come up, the old ones stay: a reload never makes things worse. The
listening socket is the master's and open throughout, so no connection is ever refused or lost in
its queue, as those of a socket per worker (SO_REUSEPORT) would be when a worker closes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_hives.server import worker
from penstock_hives.server.settings import EngineSettings

log = get_logger(__name__)


class WorkerGeneration:
    """Workers that were started with one configuration."""

    def __init__(
        self, settings: EngineSettings, listener: socket.socket, pauses: RestartBackoff
    ) -> None:
        self.settings = settings
        self.listener = listener
        self.slots = [WorkerSlot(n, settings, listener, pauses) for n in range(settings.workers)]
        self._kept = [asyncio.create_task(slot.keep()) for slot in self.slots]
        #: Done when all seats are empty; failed when a worker could never run.
        self.over = asyncio.gather(*self._kept)

    async def ready(self) -> None:
        """Returns when every worker serves; raises if one cannot."""
        await _first(self._serving(), self.ended())

    async def _serving(self) -> None:
        for slot in self.slots:
            await slot.ready.wait()

    async def ended(self) -> None:
        await asyncio.shield(self.over)

    async def retire(self) -> None:
        for slot in self.slots:
            slot.retire()
        await asyncio.wait(self._kept)
        await asyncio.gather(self.over, return_exceptions=True)  # whoever waited has been told


class Master:
    """One engine. Two may live in a process: nothing here is global."""

    def __init__(
        self, read: Callable[[], EngineSettings], pauses: RestartBackoff | None = None
    ) -> None:
        self._read = read
        self._pauses = pauses or RestartBackoff()
        self.generation: WorkerGeneration | None = None
        self.reloads = 0
        self.refusals = 0  #: reloads that changed nothing

    async def run(
        self, stop: asyncio.Event, reload: asyncio.Event, ready: Callable[[str], None]
    ) -> None:
        """Serve until `stop` is set, then drain; each time `reload` is set, begin anew."""
        settings = self._read()
        generation = self.generation = WorkerGeneration(settings, _listen(settings), self._pauses)
        retiring: set[asyncio.Task[None]] = set()
        try:
            if await _first(generation.ready(), stop.wait()) == 0:
                ready(listener_url(generation.listener))
                await self._serve(stop, reload, retiring)
        finally:
            await asyncio.gather(self.generation.retire(), *retiring)
            self.generation.listener.close()

    async def _serve(
        self, stop: asyncio.Event, reload: asyncio.Event, retiring: set[asyncio.Task[None]]
    ) -> None:
        while not stop.is_set():
            assert self.generation is not None
            if await _first(stop.wait(), reload.wait(), self.generation.ended()) != 1:
                return
            reload.clear()
            old, new = self.generation, await self._renewed(self.generation, stop)
            if new is None:
                self.refusals += 1
            else:
                self.generation = new
                self.reloads += 1
                leaving = asyncio.create_task(_leave(old, new))
                retiring.add(leaving)
                leaving.add_done_callback(retiring.discard)
                log.info("reloaded", workers=new.settings.workers)

    async def _renewed(self, old: WorkerGeneration, stop: asyncio.Event) -> WorkerGeneration | None:
        """A generation by the configuration as it is now, serving; or none, and why is logged."""
        try:
            settings = self._read()
            same = (settings.host, settings.port) == (old.settings.host, old.settings.port)
            listener = old.listener if same else _listen(settings)
        except ConfigurationError as error:
            log.error("reload refused", reason=str(error))
            return None
        new = WorkerGeneration(settings, listener, self._pauses)
        try:
            async with asyncio.timeout(settings.start):
                if await _first(new.ready(), stop.wait()) == 0:
                    return new
        except ConfigurationError as error:
            log.error("reload refused", reason=str(error))
        except TimeoutError:
            log.error("reload refused", reason="the new workers were not ready in time")
        await new.retire()
        if not same:
            listener.close()
        return None


async def _leave(old: WorkerGeneration, new: WorkerGeneration) -> None:
    await old.retire()
    if old.listener is not new.listener:
        old.listener.close()


def _listen(settings: EngineSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        where = (settings.host, settings.port)
        return socket.create_server(where, family=family, backlog=settings.backlog)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"cannot listen on {settings.host}:{settings.port}: {reason}"
        ) from error


def listener_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _first(*waits: Awaitable[object]) -> int:
    """Which of them is done first; raises what it raised."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for place, task in enumerate(tasks):
            if task.done():
                task.result()
                return place
        raise AssertionError("none was done")
    finally:
        for task in tasks:
            task.cancel()


# A worker's place: the process in it at the moment, and another one when that dies.
#
# A process that dies is replaced after a pause, short at first and longer each time; one that was
# well for a while starts anew with the short one. A process that falls silent has a loop that
# stands still, which nothing but a signal ends. Retired, the process drains, or is killed when it
# does not end in time.

#: Beyond linger and drain, what a process may take to end.
KILL_GRACE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """Between a process that died and the next: doubling, from the first to the longest."""

    first: float = 0.5
    longest: float = 30.0
    #: Seconds after which a process counts as having been well.
    well: float = 60.0


class WorkerSlot:
    """One worker, kept running until it is retired."""

    def __init__(
        self,
        number: int,
        settings: EngineSettings,
        listener: socket.socket,
        pauses: RestartBackoff,
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
        """Returns when the slot is retired and empty; raises if no process could ever run."""
        pause = self._pauses.first
        while not self._retired.is_set():
            began = self._clock()
            status = await self._once()
            if self._retired.is_set():
                return
            if status == worker.CONFIGURATION_EXIT:
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
            most = settings.linger + settings.drain + KILL_GRACE_SECONDS
            await asyncio.wait_for(asyncio.shield(ended), most)
        except TimeoutError:
            log.error("worker did not drain; killed", worker=self.number, pid=process.pid)
            process.kill()
