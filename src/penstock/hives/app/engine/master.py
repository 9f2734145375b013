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
import socket
from collections.abc import Awaitable, Callable

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.hives.app.engine.seat import Pauses, Seat
from penstock.hives.app.engine.settings import EngineSettings

log = get_logger(__name__)


class Generation:
    """Workers that were started with one configuration."""

    def __init__(self, settings: EngineSettings, listener: socket.socket, pauses: Pauses) -> None:
        self.settings = settings
        self.listener = listener
        self.seats = [Seat(n, settings, listener, pauses) for n in range(settings.workers)]
        self._kept = [asyncio.create_task(seat.keep()) for seat in self.seats]
        #: Done when all seats are empty; failed when a worker could never run.
        self.over = asyncio.gather(*self._kept)

    async def ready(self) -> None:
        """Returns when every worker serves; raises if one cannot."""
        await _first(self._serving(), self.ended())

    async def _serving(self) -> None:
        for seat in self.seats:
            await seat.ready.wait()

    async def ended(self) -> None:
        await asyncio.shield(self.over)

    async def retire(self) -> None:
        for seat in self.seats:
            seat.retire()
        await asyncio.wait(self._kept)
        await asyncio.gather(self.over, return_exceptions=True)  # whoever waited has been told


class Master:
    """One engine. Two may live in a process: nothing here is global."""

    def __init__(self, read: Callable[[], EngineSettings], pauses: Pauses | None = None) -> None:
        self._read = read
        self._pauses = pauses or Pauses()
        self.generation: Generation | None = None
        self.reloads = 0
        self.refusals = 0  #: reloads that changed nothing

    async def run(
        self, stop: asyncio.Event, reload: asyncio.Event, ready: Callable[[str], None]
    ) -> None:
        """Serve until `stop` is set, then drain; each time `reload` is set, begin anew."""
        settings = self._read()
        generation = self.generation = Generation(settings, _listen(settings), self._pauses)
        retiring: set[asyncio.Task[None]] = set()
        try:
            if await _first(generation.ready(), stop.wait()) == 0:
                ready(address(generation.listener))
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

    async def _renewed(self, old: Generation, stop: asyncio.Event) -> Generation | None:
        """A generation by the configuration as it is now, serving; or none, and why is logged."""
        try:
            settings = self._read()
            same = (settings.host, settings.port) == (old.settings.host, old.settings.port)
            listener = old.listener if same else _listen(settings)
        except ConfigurationError as error:
            log.error("reload refused", reason=str(error))
            return None
        new = Generation(settings, listener, self._pauses)
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


async def _leave(old: Generation, new: Generation) -> None:
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


def address(listener: socket.socket) -> str:
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
