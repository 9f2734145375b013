"""Runs the parts of one machine, a process each, in the order of their dependencies.

A part is a command that prints a line with `ready: ` on standard output, and stops on SIGTERM or at
the end of its standard input. The supervisor starts a part when its dependencies are ready,
restarts it with backoff when it dies, and stops all in reverse order. A part that ends with a
configuration error stops everything. Other lines of parts go to `on_line`.

The callbacks `on_line`, `on_change` and `on_ready` must not block. A part ends with its whole
process group, and all parts end with the supervisor, even if that is killed (`guardian.py`).
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
from penstock.core.retry import RetryPolicy

READY: Final = "ready: "
#: Between restarts of a part.
RESTART: Final = RetryPolicy(first=0.5, longest=30.0, jitter=0.0)
#: After so long a run the delay starts from the first again.
HEALTHY_SECONDS: Final = 60.0
#: Default of the seconds beyond the drain that a part may take to stop before it is killed.
GRACE: Final = 5.0
#: How long the output of an ended part is read: a process that left its group may hold the pipe.
LAST_LINES_SECONDS: Final = 2.0
READ_BYTES: Final = 1 << 16
#: A longer line is passed on in pieces.
LONGEST_LINE: Final = 1 << 20
#: The exit status after which a restart does not help.
CONFIGURATION_STATUS: Final = exit_status(ConfigurationError())

#: The words of the ready lines, by part.
Addresses = Mapping[str, Sequence[str]]


class State(enum.Enum):
    WAITING = "waiting"  #: for its dependencies
    STARTING = "starting"  #: before the ready line
    RUNNING = "running"
    PAUSING = "restarting"  #: it died, and waits for the restart
    STOPPING = "stopping"  #: SIGTERM was sent
    STOPPED = "stopped"
    FAILED = "failed"  #: its configuration cannot be used


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    #: Called at each start: after a restart a dependency may have another address.
    command: Callable[[Addresses], Sequence[str]]
    #: Names of the parts that must be ready first.
    needs: Sequence[str] = ()
    grace: float = GRACE
    #: Lines that contain one of these are dropped.
    noise: Sequence[str] = ()


class PartRunner:
    """One part and its current process."""

    def __init__(
        self,
        part: Part,
        addresses: dict[str, Sequence[str]],
        on_line: Callable[[str, str], None],
        drain: float,
    ) -> None:
        self.part = part
        self.guardian: ChildGuardian | None = None
        self.state = State.WAITING
        self.on_change: Callable[[PartRunner], None] = lambda _: None
        self.pid: int | None = None
        self.restarts = 0
        self.ready = asyncio.Event()
        self._addresses = addresses
        self._on_line = on_line
        self._drain = drain
        self._since = time.monotonic()

    def _set_state(self, state: State) -> None:
        self.state = state
        self.on_change(self)

    @property
    def addresses(self) -> Sequence[str]:
        return self._addresses.get(self.part.name, ())

    @property
    def uptime(self) -> float:
        return time.monotonic() - self._since if self.state is State.RUNNING else 0.0

    async def run(self, needed: Sequence[asyncio.Event], stop: asyncio.Event) -> None:
        """Waits for the dependencies, then runs and restarts the part until `stop` is set."""
        for event in needed:
            await _either(event, stop)
        failures = 0
        while not stop.is_set():
            started = time.monotonic()
            try:
                status = await self._run_once(stop)
                ending = f"ended with status {status}"
            except OSError as error:  # for example no memory for another process
                status, ending = None, f"cannot be started: {error}"
            if stop.is_set():
                break
            if status == CONFIGURATION_STATUS:
                self._set_state(State.FAILED)
                raise ConfigurationError(f"{self.part.name}: ended for the reason given above")
            if time.monotonic() - started > HEALTHY_SECONDS:
                failures = 0
            failures += 1
            delay = RESTART.delay(failures)
            self._set_state(State.PAUSING)
            self.restarts += 1
            self._on_line(self.part.name, f"{ending}; restart in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
        self._set_state(State.STOPPED)

    async def _run_once(self, stop: asyncio.Event) -> int:
        words, secrets = hide_secrets(self.part.command(self._addresses))
        # Not asyncio's, whose `wait` lasts until no child of the part holds the pipe.
        process = subprocess.Popen(  # noqa: ASYNC220
            words,
            env={**os.environ, **secrets},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C goes to the supervisor only, which stops the parts in order.
            start_new_session=True,
        )
        self.pid = process.pid
        ended = asyncio.create_task(wait_for_exit(process.pid))
        stopping = asyncio.create_task(stop.wait())
        try:
            if self.guardian is not None:
                self.guardian.watch(process.pid, self._grace)
            self._set_state(State.STARTING)
            async with _reading(process) as stdout:
                reading = asyncio.create_task(self._read(stdout))
                try:
                    await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                    if not ended.done():
                        await self._stop(process, ended)
                    await ended
                    _kill_group(process)  # its descendants
                    await asyncio.wait({reading}, timeout=LAST_LINES_SECONDS)
                finally:
                    reading.cancel()
        finally:
            stopping.cancel()
            ended.cancel()
            self.pid = None
            _kill_group(process)
            status = process.wait()
            if self.guardian is not None:
                self.guardian.unwatch(process.pid)
        return status

    async def _stop(self, process: subprocess.Popen[bytes], ended: asyncio.Task[None]) -> None:
        self._set_state(State.STOPPING)
        process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(ended), self._grace)
        except TimeoutError:
            self._on_line(self.part.name, "did not stop in time; killed")
            _kill_group(process)

    @property
    def _grace(self) -> float:
        return self._drain + self.part.grace

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        rest = b""
        while data := await stdout.read(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._handle_line(line)
        if rest:
            self._handle_line(rest)

    def _handle_line(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        if self.state is State.STARTING and READY in line:
            self._addresses[self.part.name] = line.partition(READY)[2].split()
            self._since = time.monotonic()
            self._set_state(State.RUNNING)
            self.ready.set()
        elif not any(each in line for each in self.part.noise):
            self._on_line(self.part.name, line)


class Supervisor:
    def __init__(
        self, parts: Sequence[Part], on_line: Callable[[str, str], None], drain: float = 10.0
    ) -> None:
        addresses: dict[str, Sequence[str]] = {}
        self.runners = [PartRunner(part, addresses, on_line, drain) for part in parts]
        self.ready = asyncio.Event()  #: all parts are ready
        self.on_ready: Callable[[], None] = lambda: None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, or a part has a configuration error; then stops all parts."""
        with ChildGuardian() as guardian:
            for runner in self.runners:
                runner.guardian = guardian
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        ready = {runner.part.name: runner.ready for runner in self.runners}
        tasks: dict[asyncio.Task[None], asyncio.Event] = {}
        for runner in self.runners:
            own_stop = asyncio.Event()
            needed = [ready[name] for name in runner.part.needs]
            tasks[asyncio.create_task(runner.run(needed, own_stop))] = own_stop
        stopping = asyncio.create_task(stop.wait())
        waiting = asyncio.create_task(self._wait_until_ready(ready.values()))
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            waiting.cancel()
            for task, own_stop in reversed(tasks.items()):
                own_stop.set()
                await asyncio.wait({task})
        for task in tasks:
            task.result()

    async def _wait_until_ready(self, events: Iterable[asyncio.Event]) -> None:
        for event in events:
            await event.wait()
        self.ready.set()
        self.on_ready()


@contextlib.asynccontextmanager
async def _reading(process: subprocess.Popen[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """The output of a process; its pipes are closed with the block."""
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
    """A part is the leader of its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
