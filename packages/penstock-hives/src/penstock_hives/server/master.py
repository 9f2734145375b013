"""The master process: owns the listening socket and the configuration, and supervises workers.

    await Master(read).run(stop, reload, lambda url: print(url))

On `reload` the configuration is read again, and a new generation of workers starts on the same
socket, with the code on disk. When all of them are ready, the old ones drain. If the configuration
is invalid or a new worker fails, the old generation stays. The socket is open throughout, so no
connection is refused; with a socket per worker (SO_REUSEPORT) those in a closed queue would be.

Why not uvicorn's supervisor (0.54): a reload keeps the old settings, its health check runs in a
thread and misses a blocked event loop, and workers drain one after the other. Why not gunicorn
(27.0): on a reload with a release that does not load, it ends with status 3 and serves no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock_hives.server.metrics import SiteMetrics
from penstock_hives.server.settings import (
    CONFIGURATION_EXIT,
    HEARTBEAT,
    READY,
    EngineSettings,
    encode_settings,
)

log = get_logger(__name__)

#: The module of workers; the master does not load it.
WORKER: Final = "penstock_hives.server.worker"


class WorkerGeneration:
    """The workers of one configuration."""

    def __init__(
        self,
        settings: EngineSettings,
        listener: socket.socket,
        backoff: RestartBackoff,
        metrics: SiteMetrics,
    ) -> None:
        self.settings = settings
        self.listener = listener
        self.slots = [
            WorkerSlot(n, settings, listener, backoff, metrics) for n in range(settings.workers)
        ]
        self._tasks = [asyncio.create_task(slot.run()) for slot in self.slots]
        #: Done when all workers have ended; failed when a worker cannot run.
        self.finished = asyncio.gather(*self._tasks)

    async def ready(self) -> None:
        """Wait until every worker is ready; raises if one cannot run."""
        await _first(self._serving(), self.ended())

    async def _serving(self) -> None:
        for slot in self.slots:
            await slot.ready.wait()

    async def ended(self) -> None:
        await asyncio.shield(self.finished)

    async def retire(self) -> None:
        for slot in self.slots:
            slot.retire()
        await asyncio.wait(self._tasks)
        await asyncio.gather(self.finished, return_exceptions=True)


class Master:
    def __init__(
        self, read: Callable[[], EngineSettings], backoff: RestartBackoff | None = None
    ) -> None:
        self._read = read
        self._backoff = backoff or RestartBackoff()
        self.generation: WorkerGeneration | None = None
        self.metrics = SiteMetrics()

    async def run(
        self, stop: asyncio.Event, reload: asyncio.Event, ready: Callable[[str], None]
    ) -> None:
        """Serve until `stop` is set, then drain; reload each time `reload` is set."""
        settings = self._read()
        generation = WorkerGeneration(settings, _listen(settings), self._backoff, self.metrics)
        self.generation = generation
        retiring: set[asyncio.Task[None]] = set()
        try:
            if await _first(generation.ready(), stop.wait()) == 0:
                ready(
                    listener_url(generation.listener, generation.settings.certificate is not None)
                )
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
            old, new = self.generation, await self._start_generation(self.generation, stop)
            if new is None:
                self.metrics.refused_reloads += 1
            else:
                self.generation = new
                self.metrics.reloads += 1
                task = asyncio.create_task(_retire(old, new))
                retiring.add(task)
                task.add_done_callback(retiring.discard)
                log.info("reloaded", workers=new.settings.workers)

    async def _start_generation(
        self, old: WorkerGeneration, stop: asyncio.Event
    ) -> WorkerGeneration | None:
        """A generation with the current configuration; None if it fails, with a log entry."""
        try:
            settings = self._read()
            same = (settings.host, settings.port) == (old.settings.host, old.settings.port)
            listener = old.listener if same else _listen(settings)
        except ConfigurationError as error:
            log.error("reload refused", reason=str(error))
            return None
        new = WorkerGeneration(settings, listener, self._backoff, self.metrics)
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


async def _retire(old: WorkerGeneration, new: WorkerGeneration) -> None:
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


def listener_url(listener: socket.socket, tls: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


async def _first(*waits: Awaitable[object]) -> int:
    """The index of the first that is done; raises its error."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for index, task in enumerate(tasks):
            if task.done():
                task.result()
                return index
        raise AssertionError("none was done")
    finally:
        for task in tasks:
            task.cancel()


#: For the end of a process, beyond linger and drain.
KILL_GRACE_SECONDS: Final = 10.0


_RESTART_POLICY: Final = RetryPolicy(first=0.5, longest=30.0, jitter=0.0)


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    policy: RetryPolicy = _RESTART_POLICY
    #: A process that ran for so many seconds resets the backoff.
    reset_seconds: float = 60.0


class WorkerSlot:
    """One worker process, restarted with backoff until it is retired.

    A worker without heartbeats has a blocked event loop and is killed. A retired worker drains, and
    is killed if that takes too long.
    """

    def __init__(
        self,
        number: int,
        settings: EngineSettings,
        listener: socket.socket,
        backoff: RestartBackoff,
        metrics: SiteMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number = number
        self.pid: int | None = None
        self.ready = asyncio.Event()  #: set while its process is ready
        self._settings = settings
        self._listener = listener
        self._backoff = backoff
        self._metrics = metrics
        self._clock = clock
        self._retired = asyncio.Event()

    def retire(self) -> None:
        self._retired.set()

    async def run(self) -> None:
        """Until the slot is retired; raises if the process cannot run."""
        failures = 0
        while not self._retired.is_set():
            began = self._clock()
            status = await self._run_process()
            if self._retired.is_set():
                return
            if status == CONFIGURATION_EXIT:
                raise ConfigurationError("the worker cannot run; its log has the reason")
            if self._clock() - began > self._backoff.reset_seconds:
                failures = 0
            failures += 1
            self._metrics.restarts += 1
            delay = self._backoff.policy.delay(failures)
            log.warning("worker ended", worker=self.number, status=status, restart_in=delay)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._retired.wait(), delay)

    async def _run_process(self) -> int:
        """The exit status."""
        process = await self._start()
        self.pid = process.pid
        heartbeats = asyncio.create_task(self._watch_heartbeats(process))
        ended = asyncio.create_task(process.wait())
        retired = asyncio.create_task(self._retired.wait())
        try:
            await asyncio.wait({ended, retired}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._drain(process, ended)
            status = await ended
            await asyncio.wait({heartbeats}, timeout=1.0)  # for the last metrics
            return status
        finally:
            self.pid = None
            self.ready.clear()
            self._metrics.end(self)
            for task in (heartbeats, retired):
                task.cancel()
            if process.returncode is None:  # cancelled
                process.kill()

    async def _start(self) -> asyncio.subprocess.Process:
        fd = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", WORKER, str(fd)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,  # of a line: metrics
            pass_fds=(fd,),
            # Ctrl-C goes to the master only, which drains its workers.
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended; its status tells why
            process.stdin.write(encode_settings(self._settings).encode() + b"\n")
            await process.stdin.drain()
        return process

    async def _watch_heartbeats(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        timeout = self._settings.start
        while True:
            try:
                line = await asyncio.wait_for(process.stdout.readline(), timeout)
            except TimeoutError:
                log.error("worker heartbeat lost", worker=self.number, pid=process.pid)
                process.kill()
                return
            if not line:
                return
            word, _, report = line.decode(errors="replace").strip().partition(" ")
            if word == READY:
                timeout = self._settings.silence
                self.ready.set()
                self._metrics.ready.add(self)
            elif word == HEARTBEAT:
                self._metrics.update(self, json.loads(report))

    async def _drain(self, process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        process.terminate()
        settings = self._settings
        try:
            most = settings.linger + settings.drain + KILL_GRACE_SECONDS
            await asyncio.wait_for(asyncio.shield(ended), most)
        except TimeoutError:
            log.error("worker drain timed out; killed", worker=self.number, pid=process.pid)
            process.kill()
