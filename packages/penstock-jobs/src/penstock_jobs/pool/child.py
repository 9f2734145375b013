"""A process of the pool: calls functions, one at a time, and reports their results.

The main thread does the work and reads its tasks from the socket itself: a hand-over between
threads would take longer than most tasks. A second thread reads the control socket, so that tasks
which have not started can be returned, and a task that takes too long can be interrupted by an
exception. The process ends when the worker is gone.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from types import FrameType
from typing import Any, Final

from penstock_jobs.errors import DatasetError, JobFormatError, JobTimeout
from penstock_jobs.pool.messages import (
    DONE,
    FAILED,
    INTERRUPT,
    OUTPUT,
    PROGRESS,
    READY,
    RETURN,
    PoolMessageReader,
    pack_messages,
)

#: Results are sent when no task is left, or after so long.
_HOLD_SECONDS: Final = 0.005
#: The shortest interval between progress messages.
_PROGRESS_SECONDS: Final = 0.1
_READ_BYTES: Final = 1 << 18
_MAX_ERROR_LENGTH: Final = 4_000
#: Errors that a retry would repeat.
_PERMANENT: Final = (DatasetError, JobFormatError)

PoolProgress = Callable[..., None]


class PoolChild:
    def __init__(self, tasks: socket.socket, control: socket.socket, master: str = "") -> None:
        self._tasks = tasks
        self._control = control
        self._message_reader = PoolMessageReader()
        self._send_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._current: int | None = None
        self._interrupted: int | None = None
        self._functions: dict[str, tuple[Callable[..., Any], bool]] = {}
        self._held: deque[tuple[Any, ...]] = deque()
        self._held_since = 0.0
        self._master = master
        self._open = ExitStack()
        self._spark: Any = None
        self._output = TaskOutput(self._printed, sys.stderr)

    def run(self) -> None:
        signal.signal(signal.SIGUSR1, self._interrupt)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C
        if self._master:
            self._open_session()
        threading.Thread(target=self._read_control, name="control", daemon=True).start()
        sys.stdout = sys.stderr = self._output
        self._send([(READY, 0)])
        while True:
            try:
                task = self._waiting.popleft()
            except IndexError:
                if not self._poll():
                    self._flush()
                    with self._read_lock:
                        self._read(0)
                continue
            self._hold(self._call(*task[1:]))

    def _call(
        self, number: int, name: str, arguments: Any, keywords: Any, as_json: bool, own_only: bool
    ) -> tuple[Any, ...]:
        try:
            function, takes_progress = self._function(name, own_only)
            if takes_progress:
                keywords = {**keywords, "progress": self._progress_callback(number)}
            if self._spark is not None:
                arguments = (self._spark, *arguments)
            self._current = number
            start = time.perf_counter()
            try:
                value = function(*arguments, **keywords)
                seconds = time.perf_counter() - start
                if self._output.pending:
                    self._output.flush()
            finally:
                self._current = None
            # Encoded here, so that a value that is no JSON is an error of the function.
            if as_json:
                value = "null" if value is None else json.dumps(value, allow_nan=False)
            return DONE, number, value, seconds
        except Exception as error:
            kind = type(error).__name__
            permanent = isinstance(error, _PERMANENT)
            return FAILED, number, kind, str(error)[:_MAX_ERROR_LENGTH], not permanent

    def _function(self, name: str, own_only: bool) -> tuple[Callable[..., Any], bool]:
        found = self._functions.get(name)
        if found is None:
            function = find_function(name, own_only=own_only)
            found = self._functions[name] = function, _takes_progress(function)
        return found

    def _progress_callback(self, number: int) -> PoolProgress:
        last = 0.0

        def progress(share: float, finish: float | None = None, detail: Any = None) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _PROGRESS_SECONDS or share >= 1.0:
                last = now
                self._send_progress((PROGRESS, number, float(share), finish, detail))

        return progress

    def _printed(self, text: str) -> bool:
        """Send what the current task has printed; whether there is one."""
        number = self._current
        if number is None:
            return False
        self._send_progress((OUTPUT, number, text))
        return True

    def _send_progress(self, message: tuple[Any, ...]) -> None:
        """Only the main thread is interrupted, and not while it sends half a message."""
        if threading.current_thread() is not threading.main_thread():
            self._send([message])
            return
        current, self._current = self._current, None
        self._send([message])
        self._current = current
        self._check_interrupt()

    def _hold(self, message: tuple[Any, ...]) -> None:
        now = time.monotonic()
        if not self._held:
            self._held_since = now
        self._held.append(message)
        if now - self._held_since >= _HOLD_SECONDS:
            self._flush()

    def _flush(self) -> None:
        """Called by both threads; results are sent in their order."""
        with self._flush_lock:
            held = [self._held.popleft() for _ in range(len(self._held))]
            if held:
                self._send(held)

    def _send(self, items: list[tuple[Any, ...]]) -> None:
        try:
            with self._send_lock:
                self._tasks.sendall(pack_messages(items))
        except OSError:
            os._exit(1)

    def _poll(self) -> bool:
        """Read the tasks that have arrived; whether there were any."""
        if not self._read_lock.acquire(blocking=False):
            return False  # the other thread reads
        try:
            return self._read(socket.MSG_DONTWAIT)
        finally:
            self._read_lock.release()

    def _read(self, flags: int) -> bool:
        try:
            data = self._tasks.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            os._exit(0)  # the worker is gone
        self._waiting.extend(self._message_reader.feed(data))
        return True

    def _read_control(self) -> None:
        message_reader = PoolMessageReader()
        while data := self._receive_control():
            for verb, number in message_reader.feed(data):
                if verb == RETURN:
                    self._return_tasks()
                elif verb == INTERRUPT:
                    self._interrupted = number
                    main = threading.main_thread().ident
                    assert main is not None
                    signal.pthread_kill(main, signal.SIGUSR1)
        os._exit(0)  # the worker is gone

    def _receive_control(self) -> bytes:
        try:
            return self._control.recv(_READ_BYTES)
        except OSError:
            return b""

    def _return_tasks(self) -> None:
        """Send the results, too, because the current task may take long."""
        while self._poll():
            pass
        numbers: deque[int] = deque()
        while True:
            try:
                numbers.appendleft(self._waiting.pop()[1])
            except IndexError:
                break
        self._flush()
        self._send([(RETURN, 0, list(numbers))])

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The signal handler, in the main thread."""
        self._check_interrupt()

    def _check_interrupt(self) -> None:
        if self._interrupted is not None and self._interrupted == self._current:
            self._interrupted = None
            raise JobTimeout("its time is over")

    def _open_session(self) -> None:
        from penstock_spark.session import flow_session

        self._spark = self._open.enter_context(flow_session("jobs", self._master))


class TaskOutput(io.TextIOBase):
    """The standard output and error of tasks, passed on line by line; without a task it is that of
    the process. Threads of a task print, too."""

    def __init__(self, printed: Callable[[str], bool], otherwise: Any) -> None:
        self._printed = printed
        self._otherwise = otherwise
        self.pending = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._otherwise.fileno())

    def write(self, text: str) -> int:
        self.pending += text
        if "\n" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text, self.pending = self.pending, ""
        if text and not self._printed(text):
            self._otherwise.write(text)
            self._otherwise.flush()


def _takes_progress(function: Callable[..., Any]) -> bool:
    try:
        return "progress" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def main(tasks: int, control: int, master: str) -> None:
    PoolChild(socket.socket(fileno=tasks), socket.socket(fileno=control), master).run()


def find_function(name: str, *, own_only: bool = True) -> Callable[..., Any]:
    """The function `module:name` or `module:Class.name`.

    A requester chooses the name, and may be allowed the functions of a module, not what the module
    imports. With `own_only` there is no way through an imported module (`module:os.system`), to a
    name with an underscore, or to a function or class of another package. A function that is
    allowed by its own name may be anything.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
            if own_only and (step.startswith("_") or inspect.ismodule(found)):
                raise JobFormatError(f"the function {name} is not public")
    except (ImportError, AttributeError, ValueError) as error:
        raise JobFormatError(f"function {name} not found: {error}") from error
    if not callable(found):
        raise JobFormatError(f"{name} is not a function")
    home = _defining_module(found)
    if own_only and home is not None and _package(home) != _package(module):
        raise JobFormatError(f"{name} is defined in {home}: allow it by its own name to call it")
    return found  # type: ignore[no-any-return]


def _defining_module(found: Any) -> str | None:
    """None for a callable value, which does not name its module."""
    if inspect.isroutine(found) or inspect.isclass(found):
        return getattr(found, "__module__", None)
    return None


def _package(module: str) -> str:
    return module.partition(".")[0].lstrip("_")  # some modules of Python have a twin: _io, io


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
