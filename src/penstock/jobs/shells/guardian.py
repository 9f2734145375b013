"""Ends what a worker has started when the worker itself is gone.

A worker that is killed cannot end its commands. This small process reads from a pipe whose other
end only the worker has: it is told of process groups and folders, and when the pipe ends it kills
the groups and removes the folders that it was not told are done with.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO


class Guardian:
    """The worker's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what ends the worker's group does not end its guardian
        )

    def watch(self, what: str) -> None:
        """A folder's path, or the number of a process group."""
        self._say("+", what)

    def forget(self, what: str) -> None:
        self._say("-", what)

    def _say(self, sign: str, what: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # without it work goes on; only a crash would leave traces
            self._process.stdin.write(f"{sign}{what}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def guard(told: IO[bytes]) -> None:
    """The guardian's side: listen to the end, then clear away."""
    watched: dict[str, None] = {}
    for line in told:
        sign, what = line[:1], line[1:].decode().rstrip("\n")
        if sign == b"+":
            watched[what] = None
        else:
            watched.pop(what, None)
    for what in watched:
        if what.isdigit():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(what), signal.SIGKILL)
    for what in watched:
        if not what.isdigit():
            shutil.rmtree(what, ignore_errors=True)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    guard(sys.stdin.buffer)
