"""Removes the folders of a worker that was killed.

This process reads from a pipe whose other end only the worker has. The worker names its reapers,
which end their commands by themselves when the worker is gone, and its folders. When the pipe ends
the process waits for the reapers and removes the folders that the worker has not released.
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

#: A little more than a reaper waits for processes that cannot be killed.
_WAIT_SECONDS: Final = 10.0


class CleanupProcess:
    """The worker's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # survives a signal to the worker's group
        )

    def watch(self, what: str) -> None:
        """`what` is the path of a folder or the pid of a reaper."""
        self._write("+", what)

    def forget(self, what: str) -> None:
        self._write("-", what)

    def _write(self, sign: str, what: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # without it only a crash leaves folders behind
            self._process.stdin.write(f"{sign}{what}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def run_cleanup(pipe: IO[bytes]) -> None:
    folders: dict[str, None] = {}
    reapers: dict[str, int] = {}
    for line in pipe:
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
