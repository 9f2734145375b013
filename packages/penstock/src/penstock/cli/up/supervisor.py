"""Keeps the parts of one machine running: a process each, in order of need.

A part is a command that prints one line with `ready: ` in it on standard output, and stops
cleanly on SIGTERM or when its standard input ends. The supervisor starts each when those it needs
are ready, starts it again when it dies (sooner the longer it had lived), and stops all one by one,
the last first. A part that says its configuration cannot be used would say so again: that ends
everything. What parts write beside the ready line goes to `said`.

Nothing the supervisor calls may block its loop: `said`, `changed` and `on_ready` only take note. A
part ends with all of its process group, and all parts end with the supervisor, even if that is
killed (`guardian.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.arguments import hide_secrets
from penstock.cli.errors import exit_status
from penstock.cli.shutdown import wait_for_exit
from penstock.cli.up.guardian import ChildGuardian
from penstock.core.errors import ConfigurationError

READY: Final = "ready: "
#: Between two starts: half a second at first, twice as long each time, half a minute at most.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
#: A part that ran this long was well; its next pause is the first one again.
WELL_AFTER: Final = 60.0
#: How much longer than the drain a part may take to stop before it is killed, usually.
GRACE: Final = 5.0
#: How long the last lines of a part that has ended are read: a process that has left its group may
#: hold the pipe open for ever.
LAST_LINES_SECONDS: Final = 2.0
READ_BYTES: Final = 1 << 16
#: A line that is longer is handed on in pieces.
LONGEST_LINE: Final = 1 << 20
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
        self.guardian: ChildGuardian | None = None
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
            try:
                status = await self._once(stop)
                ending = f"ended with status {status}"
            except OSError as error:  # the machine has no room for another process
                status, ending = None, f"cannot be started: {error}"
            if stop.is_set():
                break
            if status == HOPELESS:
                self._enter(State.FAILED)
                raise ConfigurationError(f"{self.part.name}: ended for the reason given above")
            if time.monotonic() - started > WELL_AFTER:
                pause = FIRST_PAUSE
            self._enter(State.PAUSING)
            self.restarts += 1
            self._said(self.part.name, f"{ending}; again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self._enter(State.STOPPED)

    async def _once(self, stop: asyncio.Event) -> int:
        words, secrets = hide_secrets(self.part.command(self._addresses))
        # Not asyncio's: its `wait` lasts for as long as a child of the part's holds the pipe.
        process = subprocess.Popen(  # noqa: ASYNC220
            words,
            env={**os.environ, **secrets},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal is for the supervisor, which stops the parts in order.
            start_new_session=True,
        )
        self.pid = process.pid
        ended = asyncio.create_task(wait_for_exit(process.pid))
        told = asyncio.create_task(stop.wait())
        try:
            if self.guardian is not None:
                self.guardian.watch(process.pid, self._grace)
            self._enter(State.STARTING)
            async with _reading(process) as stdout:
                listening = asyncio.create_task(self._listen(stdout))
                try:
                    await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
                    if not ended.done():
                        await self._stop(process, ended)
                    await ended
                    _kill_group(process)  # what it has left behind
                    await asyncio.wait({listening}, timeout=LAST_LINES_SECONDS)
                finally:
                    listening.cancel()
        finally:
            told.cancel()
            ended.cancel()
            self.pid = None
            _kill_group(process)
            status = process.wait()
            if self.guardian is not None:
                self.guardian.forget(process.pid)
        return status

    async def _stop(self, process: subprocess.Popen[bytes], ended: asyncio.Task[None]) -> None:
        self._enter(State.STOPPING)
        process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(ended), self._grace)
        except TimeoutError:
            self._said(self.part.name, "did not stop in time; killed")
            _kill_group(process)

    @property
    def _grace(self) -> float:
        """Seconds that the part may take to stop."""
        return self._drain + self.part.grace

    async def _listen(self, stdout: asyncio.StreamReader) -> None:
        rest = b""
        while data := await stdout.read(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._hear(line)
        if rest:
            self._hear(rest)

    def _hear(self, raw: bytes) -> None:
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
        with ChildGuardian() as guardian:
            for keeper in self.keepers:
                keeper.guardian = guardian
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
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


@contextlib.asynccontextmanager
async def _reading(process: subprocess.Popen[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """What a process writes; its pipes are closed with the block."""
    assert process.stdin is not None
    assert process.stdout is not None
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    try:
        yield reader
    finally:
        transport.close()
        process.stdin.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """A part leads a process group: end what is left of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _either(*events: asyncio.Event) -> None:
    """Returns when one of them is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
