"""Events for the end of this process and of others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def stop_event(with_stdin: bool = False) -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM, Ctrl-C or, `with_stdin`, the end of standard input sets. A second
    signal is not caught, so it ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    caught = (signal.SIGTERM, signal.SIGINT)
    for number in caught:
        loop.add_signal_handler(number, signalled, number)
    stdin: asyncio.BaseTransport | None = None
    if with_stdin and _is_pipe():
        stdin, _ = await loop.connect_read_pipe(lambda: _EndOfInput(stop), sys.stdin)
    elif with_stdin:
        stop.set()
    try:
        yield stop
    finally:
        if stdin is not None:
            stdin.close()
        for number in caught:
            loop.remove_signal_handler(number)


async def wait_for_exit(pid: int) -> None:
    """Returns when a process has ended, which need not be a child; it is not reaped."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(pid)
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _is_pipe() -> bool:
    """Whether standard input can end later; a file or /dev/null is at its end."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()


class _EndOfInput(asyncio.Protocol):
    """The pipe ends with the parent, however that ended."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()
