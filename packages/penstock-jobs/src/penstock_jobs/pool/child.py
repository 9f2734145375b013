"""A process of the pool: calls functions, one at a time, and tells what comes of them.

The main thread does the work, and takes it from its line itself: to be handed it by another thread
would take longer than most of it does. That other thread listens to orders, so that work which has
not begun can be given back and work that takes too long be asked to end, by an exception. When the
worker is gone, so is this. What a function prints goes where the worker's output goes.
"""

from __future__ import annotations

import inspect
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
    GIVE_BACK,
    INTERRUPT,
    PROGRESS,
    READY,
    PoolMessageReader,
    pack_messages,
)

#: What is done is told when there is nothing else to do, or after so long.
_HOLD_SECONDS: Final = 0.005
#: More often than that nobody looks.
_PROGRESS_SECONDS: Final = 0.1
_READ_BYTES: Final = 1 << 18
_TEXT: Final = 4_000
#: These will be the same the next time.
_LASTING: Final = (DatasetError, JobFormatError)

PoolProgress = Callable[..., None]


class PoolChild:
    def __init__(self, line: socket.socket, orders: socket.socket, master: str = "") -> None:
        self._line = line
        self._orders = orders
        self._message_reader = PoolMessageReader()
        self._sending = threading.Lock()
        self._telling = threading.Lock()
        self._taking = threading.Lock()
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._current: int | None = None
        self._asked: int | None = None
        self._functions: dict[str, tuple[Callable[..., Any], bool]] = {}
        self._held: deque[tuple[Any, ...]] = deque()
        self._held_since = 0.0
        self._master = master
        self._open = ExitStack()
        self._spark: Any = None

    def run(self) -> None:
        """Until the worker is gone."""
        signal.signal(signal.SIGUSR1, self._interrupt)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to hear
        if self._master:
            self._open_session()
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        self._send([(READY, 0)])
        while True:
            try:
                work = self._waiting.popleft()
            except IndexError:
                if not self._take():
                    self._tell_held()
                    self._wait()
                continue
            self._hold(self._carry_out(*work[1:]))

    def _carry_out(
        self, number: int, name: str, arguments: Any, keywords: Any, plain: bool, own: bool
    ) -> tuple[Any, ...]:
        try:
            function, tells = self._function(name, own)
            if tells:
                keywords = {**keywords, "progress": self._teller(number)}
            if self._spark is not None:
                arguments = (self._spark, *arguments)
            self._current = number
            begun = time.perf_counter()
            try:
                value = function(*arguments, **keywords)
            finally:
                self._current = None
            seconds = time.perf_counter() - begun
            # What goes on as JSON is made so here, where a mistake is still the function's.
            if plain:
                value = "null" if value is None else json.dumps(value, allow_nan=False)
            return DONE, number, value, seconds
        except Exception as error:
            kind = type(error).__name__
            lasting = isinstance(error, _LASTING)
            return FAILED, number, kind, str(error)[:_TEXT], not lasting

    def _function(self, name: str, own: bool) -> tuple[Callable[..., Any], bool]:
        found = self._functions.get(name)
        if found is None:
            function = find_function(name, own=own)
            found = self._functions[name] = function, _takes_progress(function)
        return found

    def _teller(self, number: int) -> PoolProgress:
        last = 0.0

        def told(share: float, finish: float | None = None) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _PROGRESS_SECONDS or share >= 1.0:
                last = now
                self._tell((PROGRESS, number, float(share), finish))

        return told

    def _tell(self, told: tuple[Any, ...]) -> None:
        """By the thread that works, or by one that it has started; only the former is interrupted,
        and not while it sends: half a parcel would be the end of the line."""
        if threading.current_thread() is not threading.main_thread():
            self._send([told])
            return
        current, self._current = self._current, None
        self._send([told])
        self._current = current
        self._heed()

    # Telling.

    def _hold(self, told: tuple[Any, ...]) -> None:
        now = time.monotonic()
        if not self._held:
            self._held_since = now
        self._held.append(told)
        if now - self._held_since >= _HOLD_SECONDS:
            self._tell_held()

    def _tell_held(self) -> None:
        """By whichever thread comes first; what was done earlier is told earlier."""
        with self._telling:
            held = [self._held.popleft() for _ in range(len(self._held))]
            if held:
                self._send(held)

    def _send(self, items: list[tuple[Any, ...]]) -> None:
        try:
            with self._sending:
                self._line.sendall(pack_messages(items))
        except OSError:
            os._exit(1)

    # Taking and giving back.

    def _wait(self) -> None:
        """For work; who else would take it finds that out, and leaves it."""
        with self._taking:
            self._read(0)

    def _take(self) -> bool:
        """What has come, by whichever thread; whether there was any."""
        if not self._taking.acquire(blocking=False):
            return False  # the other is at it, or has nothing to do and waits for more
        try:
            return self._read(socket.MSG_DONTWAIT)
        finally:
            self._taking.release()

    def _read(self, flags: int) -> bool:
        try:
            data = self._line.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            os._exit(0)  # the worker is gone
        self._waiting.extend(self._message_reader.feed(data))
        return True

    def _listen(self) -> None:
        message_reader = PoolMessageReader()
        while data := self._hear():
            for verb, number in message_reader.feed(data):
                if verb == GIVE_BACK:
                    self._give_back()
                elif verb == INTERRUPT:
                    self._asked = number
                    main = threading.main_thread().ident
                    assert main is not None
                    signal.pthread_kill(main, signal.SIGUSR1)
        os._exit(0)  # the worker is gone; whatever is being done, nobody wants it

    def _hear(self) -> bytes:
        try:
            return self._orders.recv(_READ_BYTES)
        except OSError:
            return b""

    def _give_back(self) -> None:
        """And tell what is done: what is at work now may take long."""
        while self._take():
            pass
        numbers: deque[int] = deque()
        while True:
            try:
                numbers.appendleft(self._waiting.pop()[1])
            except IndexError:
                break
        self._tell_held()
        self._send([(GIVE_BACK, 0, list(numbers))])

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between two steps of whatever it does."""
        self._heed()

    def _heed(self) -> None:
        """End the work at hand, if that was asked for."""
        if self._asked is not None and self._asked == self._current:
            self._asked = None
            raise JobTimeout("its time is over")

    def _open_session(self) -> None:
        from penstock_spark.session import flow_session

        self._spark = self._open.enter_context(flow_session("jobs", self._master))


def _takes_progress(function: Callable[..., Any]) -> bool:
    """Whether it wants to be given something to tell its progress to."""
    try:
        return "progress" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def main(line: int, orders: int, master: str) -> None:
    PoolChild(socket.socket(fileno=line), socket.socket(fileno=orders), master).run()


# The function that a name means: `module:name`, or `module:Class.name`.
#
# Whoever may ask for work may choose the name, and was permitted a module's functions: not what
# that module uses to do its work. So nothing is found by way of a module it has imported
# (`module:os.system`), nothing that begins with an underscore, and no function or class that is
# another package's. What was permitted by its own name may be anything.


def find_function(name: str, *, own: bool = True) -> Callable[..., Any]:
    """With `own`, only what is the module's own, and for others."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
            if own and (step.startswith("_") or inspect.ismodule(found)):
                raise JobFormatError(f"{name} is not for others to call")
    except (ImportError, AttributeError, ValueError) as error:
        raise JobFormatError(f"there is no function {name}: {error}") from error
    if not callable(found):
        raise JobFormatError(f"{name} is no function")
    home = _defining_module(found)
    if own and home is not None and _package(home) != _package(module):
        raise JobFormatError(f"{name} is of {home}: it may be called if it is permitted by name")
    return found  # type: ignore[no-any-return]


def _defining_module(found: Any) -> str | None:
    """The module it was written in; of a value that can be called nobody knows."""
    if inspect.isroutine(found) or inspect.isclass(found):
        return getattr(found, "__module__", None)
    return None


def _package(module: str) -> str:
    return module.partition(".")[0].lstrip("_")  # some of Python's own are in two


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
