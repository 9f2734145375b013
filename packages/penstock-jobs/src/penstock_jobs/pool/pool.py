"""A pool of processes, and which of them runs which task.

A task goes to the process with the fewest tasks. While tasks are short a process gets several at
once; when one turns out to be long, the tasks behind it are returned. A process that dies fails the
task it was running; those that waited there go to other processes. After `recycle` tasks a process
is replaced, which bounds memory leaks.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, cast

from penstock.core.logs import get_logger
from penstock_jobs.pool.messages import (
    DONE,
    INTERRUPT,
    OUTPUT,
    PROGRESS,
    READY,
    RETURN,
    RUN,
    PoolMessageReader,
    pack_messages,
)
from penstock_jobs.shells.reaper import reaper_command

log = get_logger(__name__)

#: The most tasks that one process has at a time.
_MAX_QUEUED: Final = 64
#: A longer task has the tasks behind it moved to other processes.
_LONG_SECONDS: Final = 0.05
_RESTART_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class PoolTask:
    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    as_json: bool  #: the returned value is encoded as JSON
    on_progress: Callable[[float, float | None, Any], None]  #: share, finish, what was counted
    on_done: Callable[[Any, float], None]  #: the returned value, the duration in seconds
    on_failed: Callable[[str, str, bool], None]  #: type, text, whether to retry
    on_lost: Callable[[str], None]  #: the reason why its process ended
    own_only: bool = True  #: the function must be defined by its module
    on_output: Callable[[str], None] = lambda _: None
    number: int = 0
    process: PoolProcess | None = None


class ProcessPool:
    def __init__(self, size: int, *, recycle: int | None = None, master: str = "") -> None:
        """With a `master`, each process has a Spark session, the first argument of functions."""
        self._size = size
        self._recycle = recycle
        self._master = master
        self._numbers = 0
        self._processes: dict[PoolProcess, dict[int, PoolTask]] = {}  # tasks in their order
        self._waiting: dict[int, PoolTask] = {}  # for a process
        self._reasons: dict[PoolProcess, str] = {}  # why the pool ended a process
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Returns when one process is ready. Without `open` the first task starts processes."""
        self._start_processes()
        await self._first_ready.wait()

    async def close(self) -> None:
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        processes = list(self._processes)
        for process in processes:
            process.end()
        for process in processes:
            await process.wait()

    def submit(self, task: PoolTask) -> None:
        self._numbers += 1
        task.number = self._numbers
        if not self._processes:
            self._start_processes()
        process = None if self._waiting else self._least_busy()
        if process is None:
            self._waiting[task.number] = task
        else:
            self._send(task, process)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LONG_SECONDS, self._check_durations, {})

    def withdraw(self, task: PoolTask) -> bool:
        """Remove a task that no process has; whether that was so."""
        return self._waiting.pop(task.number, None) is not None

    def is_started(self, task: PoolTask) -> bool:
        process = task.process
        return process is not None and next(iter(self._processes[process]), 0) == task.number

    def interrupt(self, task: PoolTask) -> None:
        """Raise an exception in the task."""
        if task.process is not None:
            task.process.send_control(INTERRUPT, task.number)

    def terminate(self, task: PoolTask, reason: str) -> None:
        """At once; the process of a started task is ended."""
        process = task.process
        if process is None:
            if self.withdraw(task):
                task.on_lost(reason)
        elif not self.is_started(task):
            self._processes[process].pop(task.number)  # its result is ignored
            task.on_lost(reason)
        else:
            self._reasons[process] = reason
            process.end()

    def _send(self, task: PoolTask, process: PoolProcess) -> None:
        task.process = process
        process.task_count += 1
        self._processes[process][task.number] = task
        call = task.function, task.arguments, task.keywords, task.as_json, task.own_only
        process.send((RUN, task.number, *call))

    def _least_busy(self) -> PoolProcess | None:
        best, least = None, _MAX_QUEUED
        for process, tasks in self._processes.items():
            accepts = process.ready and not process.has_long_task and not self._is_worn(process)
            if len(tasks) < least and accepts:
                best, least = process, len(tasks)
        return best

    def _is_worn(self, process: PoolProcess) -> bool:
        return self._recycle is not None and process.task_count >= self._recycle

    def _send_waiting(self) -> None:
        while self._waiting and (process := self._least_busy()) is not None:
            self._send(self._waiting.pop(next(iter(self._waiting))), process)

    def _put_back(self, tasks: list[PoolTask]) -> None:
        """To the front of the queue, in their order."""
        for task in tasks:
            task.process = None
        self._waiting = {task.number: task for task in tasks} | self._waiting

    def _check_durations(self, former: dict[PoolProcess, int]) -> None:
        """Find processes that run the same task as at the last check, with others behind it."""
        current: dict[PoolProcess, int] = {}
        for process, tasks in self._processes.items():
            if tasks:
                current[process] = first = next(iter(tasks))
                if former.get(process) == first:
                    process.has_long_task = True
                    if len(tasks) > 1:
                        process.send_control(RETURN)
        self._timer = None
        if current or self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LONG_SECONDS, self._check_durations, current)

    def _received(self, process: PoolProcess, message: tuple[Any, ...]) -> None:
        verb, number = message[0], message[1]
        tasks = self._processes[process]
        if verb == READY:
            process.ready = True
            self._first_ready.set()
        elif verb == PROGRESS:
            if task := tasks.get(number):
                task.on_progress(*message[2:])
            return
        elif verb == OUTPUT:
            if task := tasks.get(number):
                task.on_output(message[2])
            return
        elif verb == RETURN:
            returned = [task for each in message[2] if (task := tasks.pop(each, None))]
            process.task_count -= len(returned)
            # A process that was slow to start returns all its tasks: then none of them is long.
            process.has_long_task = process.has_long_task and bool(tasks)
            self._put_back(returned)
        else:
            process.has_long_task = False
            if task := tasks.pop(number, None):
                task.process = None
                if verb == DONE:
                    task.on_done(message[2], message[3])
                else:
                    task.on_failed(message[2], message[3], message[4])
        if self._is_worn(process) and not tasks:
            self._reasons[process] = "its process was recycled"
            process.end()
        self._send_waiting()

    def _gone(self, process: PoolProcess) -> None:
        tasks = list(self._processes.pop(process).values())
        reason = self._reasons.pop(process, "its process ended")
        self._start_task(process.wait())
        if self._closing:
            return
        if tasks:
            log.warning("pool process ended", pid=process.pid, reason=reason)
            first, *rest = tasks
            self._put_back(rest)
            first.process = None
            first.on_lost(reason)
        if process.ready:
            self._start_processes()
        else:  # it failed to start, and so may the next
            asyncio.get_running_loop().call_later(_RESTART_SECONDS, self._start_processes)
        self._send_waiting()

    def _start_processes(self) -> None:
        while len(self._processes) < self._size and not self._closing:
            process = PoolProcess(self._received, self._gone)
            self._processes[process] = {}
            self._start_task(self._start(process))

    async def _start(self, process: PoolProcess) -> None:
        try:
            await process.start(self._master)
        except OSError as error:
            log.warning("pool process not started", reason=str(error))
            self._gone(process)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class PoolProcess(asyncio.Protocol):
    """The worker's side of a process, which runs below a reaper: its descendants end with it."""

    def __init__(
        self,
        received: Callable[[PoolProcess, tuple[Any, ...]], None],
        gone: Callable[[PoolProcess], None],
    ) -> None:
        self.ready = False
        self.has_long_task = False
        self.task_count = 0  #: since its start
        self._received = received
        self._gone = gone
        self._message_reader = PoolMessageReader()
        self._transport: asyncio.Transport | None = None
        self._control: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: socket.socket | None = None  # closing it ends the process
        self._batch: list[tuple[Any, ...]] = []
        self._batching = False  # something was written in this pass of the loop

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, master: str = "") -> None:
        """Raises OSError if the system cannot start another process."""
        tasks, child_tasks = socket.socketpair()
        control, child_control = socket.socketpair()
        self._reaper, child_reaper = socket.socketpair()
        sockets = child_tasks.fileno(), child_control.fileno()
        command = [sys.executable, "-m", "penstock_jobs.pool.child", *map(str, sockets), master]
        try:
            with child_tasks, child_control, child_reaper:
                # Not asyncio's subprocess: the end of the socket is the end of the process.
                self._process = subprocess.Popen(  # noqa: ASYNC220
                    reaper_command(command, child_reaper.fileno(), *sockets),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(child_reaper.fileno(), *sockets),
                    start_new_session=True,
                )
        except OSError:
            for own in (tasks, control, self._reaper):
                own.close()
            raise
        loop = asyncio.get_running_loop()
        self._control, _ = await loop.create_unix_connection(asyncio.Protocol, sock=control)
        await loop.create_unix_connection(lambda: self, sock=tasks)

    def send_control(self, verb: str, number: int = 0) -> None:
        """Read by the process even while it runs a task."""
        if self._control is not None and not self._control.is_closing():
            self._control.write(pack_messages([(verb, number)]))

    def send(self, message: tuple[Any, ...]) -> None:
        """The first task of a pass of the loop is written at once, for an idle process; those that
        follow are written together."""
        if self._batching:
            self._batch.append(message)
            return
        self._batching = True
        self._write([message])
        asyncio.get_running_loop().call_soon(self._flush)

    def end(self) -> None:
        """At once, with all processes it has started."""
        if self._reaper is not None:
            self._reaper.close()

    async def wait(self) -> None:
        """Returns when the process has ended."""
        for transport in (self._transport, self._control):
            if transport is not None:
                transport.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def _flush(self) -> None:
        self._batching = False
        if self._batch:
            batch, self._batch = self._batch, []
            self._write(batch)

    def _write(self, messages: list[tuple[Any, ...]]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack_messages(messages))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._message_reader.feed(data):
            self._received(self, message)

    def connection_lost(self, error: Exception | None) -> None:
        self.end()  # ends descendants that are left
        self._gone(self)
