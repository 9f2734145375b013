"""Clears away what a worker leaves when the worker itself is gone.

A worker that is killed cannot remove its folders. This small process reads from a pipe whose other
end only the worker has: it is told of reapers, which end their commands themselves then, and of
folders. When the pipe ends it waits for the reapers and removes the folders that it was not told
are done with.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, Final

#: A reaper needs so long for what cannot be killed, and a little more.
_WAIT_SECONDS: Final = 10.0


class CleanupProcess:
    """The worker's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what ends the worker's group does not end its guardian
        )

    def watch(self, what: str) -> None:
        """A folder's path, or the number of a reaper's process."""
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


def run_cleanup(told: IO[bytes]) -> None:
    """The guardian's side: listen to the end, then clear away."""
    folders: dict[str, None] = {}
    reapers: dict[str, int] = {}
    for line in told:
        sign, what = line[:1], line[1:].decode().rstrip("\n")
        if not what.isdigit():
            folders |= {what: None}
            if sign == b"-":
                del folders[what]
        elif sign == b"+":
            with suppress(ProcessLookupError):
                reapers[what] = os.pidfd_open(int(what))
        elif what in reapers:
            os.close(reapers.pop(what))
    for reaper in reapers.values():
        select.select([reaper], [], [], _WAIT_SECONDS)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    run_cleanup(sys.stdin.buffer)
