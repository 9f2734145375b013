"""Keeps the parts of one machine running: a process each, in order of need.

A part is a command that prints one line with `ready: ` in it on standard output, and stops
cleanly on SIGTERM or when its standard input ends. The supervisor starts each when those it needs
are ready, starts it again when it dies (sooner the longer it had lived), and stops all one by one,
the last first. A part that says its configuration cannot be used would say so again: that ends
everything. What parts write beside the ready line goes to `said`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.errors import exit_status
from penstock.core.errors import ConfigurationError

READY: Final = "ready: "
#: Between two starts: half a second at first, twice as long each time, half a minute at most.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
#: A part that ran this long was well; its next pause is the first one again.
WELL_AFTER: Final = 60.0
#: How much longer than the drain a part may take to stop before it is killed, usually.
GRACE: Final = 5.0
#: The exit status of a part that starting again will not help.
HOPELESS: Final = exit_status(ConfigurationError())

#: What parts that are ready said of themselves, by name.
Addresses = Mapping[str, Sequence[str]]


class State(enum.Enum):
    WAITING = "waiting"  #: for a part it needs
    STARTING = "starting"  #: the process is there, the ready line is not
    RUNNING = "running"  #: it said it is ready
    PAUSING = "restarting"  #: it died, and waits to be started again
    STOPPING = "stopping"  #: it was told to stop
    STOPPED = "stopped"
    FAILED = "failed"  #: it cannot run as it is configured


@dataclass(frozen=True, slots=True)
class Part:
    """A command to keep running."""

    name: str
    #: Made anew at each start: a part that was started again may have another address.
    command: Callable[[Addresses], Sequence[str]]
    #: The names of parts, before it in order, that have to be ready first.
    needs: Sequence[str] = ()
    grace: float = GRACE
    #: Lines with one of these in them mean nothing, and are not told.
    noise: Sequence[str] = ()


class Keeper:
    """One part and the process it has at the moment."""

    def __init__(
        self,
        part: Part,
        addresses: dict[str, Sequence[str]],
        said: Callable[[str, str], None],
        drain: float,
    ) -> None:
        self.part = part
        self.state = State.WAITING
        self.changed: Callable[[Keeper], None] = lambda keeper: None
        self.pid: int | None = None
        self.restarts = 0
        self.ready = asyncio.Event()
        self._addresses = addresses
        self._said = said
        self._drain = drain
        self._since = time.monotonic()

    def _enter(self, state: State) -> None:
        self.state = state
        self.changed(self)

    @property
    def addresses(self) -> Sequence[str]:
        return self._addresses.get(self.part.name, ())

    @property
    def uptime(self) -> float:
        return time.monotonic() - self._since if self.state is State.RUNNING else 0.0

    async def keep(self, needed: Sequence[asyncio.Event], stop: asyncio.Event) -> None:
        """When what it needs is there, run the part, again and again, until `stop` is set."""
        for event in needed:
            await _either(event, stop)
        pause = FIRST_PAUSE
        while not stop.is_set():
            started = time.monotonic()
            status = await self._once(stop)
            if stop.is_set():
                break
            if status == HOPELESS:
                self._enter(State.FAILED)
                raise ConfigurationError(f"{self.part.name}: ended for the reason given above")
            if time.monotonic() - started > WELL_AFTER:
                pause = FIRST_PAUSE
            self._enter(State.PAUSING)
            self.restarts += 1
            self._said(self.part.name, f"ended with status {status}; again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self._enter(State.STOPPED)

    async def _once(self, stop: asyncio.Event) -> int:
        process = await asyncio.create_subprocess_exec(
            *self.part.command(self._addresses),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C in the terminal is for the supervisor, which stops the parts in order.
            start_new_session=True,
        )
        self.pid = process.pid
        self._enter(State.STARTING)
        assert process.stdout is not None
        listening = asyncio.create_task(self._listen(process.stdout))
        ended = asyncio.create_task(process.wait())
        told = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._stop(process, ended)
            await listening
            return await ended
        finally:
            told.cancel()
            self.pid = None
            if process.returncode is None:  # cancelled: leave no orphan behind
                process.kill()

    async def _stop(self, process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        self._enter(State.STOPPING)
        process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(ended), self._drain + self.part.grace)
        except TimeoutError:
            self._said(self.part.name, "did not stop in time; killed")
            process.kill()

    async def _listen(self, stdout: asyncio.StreamReader) -> None:
        async for raw in stdout:
            line = raw.decode(errors="replace").rstrip()
            if self.state is State.STARTING and READY in line:
                self._addresses[self.part.name] = line.partition(READY)[2].split()
                self._since = time.monotonic()
                self._enter(State.RUNNING)
                self.ready.set()
            elif not any(each in line for each in self.part.noise):
                self._said(self.part.name, line)


class Supervisor:
    """All parts, in order of need."""

    def __init__(
        self, parts: Sequence[Part], said: Callable[[str, str], None], drain: float = 10.0
    ) -> None:
        addresses: dict[str, Sequence[str]] = {}
        self.keepers = [Keeper(part, addresses, said, drain) for part in parts]
        self.ready = asyncio.Event()  #: set once all are
        self.on_ready: Callable[[], None] = lambda: None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the parts running until `stop` is set, or one is hopeless; then stop them all."""
        ready = {keeper.part.name: keeper.ready for keeper in self.keepers}
        kept: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        for keeper in self.keepers:
            own = asyncio.Event()
            needed = [ready[name] for name in keeper.part.needs]
            kept.append((own, asyncio.create_task(keeper.keep(needed, own))))
        told = asyncio.create_task(stop.wait())
        announcing = asyncio.create_task(self._announce(ready.values()))
        try:
            await asyncio.wait(
                {told, *(task for _, task in kept)}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            told.cancel()
            announcing.cancel()
            for own, task in reversed(kept):
                own.set()
                await asyncio.wait({task})
        for _, task in kept:
            task.result()

    async def _announce(self, all_of: Iterable[asyncio.Event]) -> None:
        for event in all_of:
            await event.wait()
        self.ready.set()
        self.on_ready()


async def _either(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
