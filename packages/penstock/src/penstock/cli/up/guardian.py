"""Ends child processes when the process that started them is gone, however it ended.

The guardian is a small process that reads from a pipe whose other end only its parent holds. The
parent registers each child, which leads a process group of its own, and the seconds it may take to
stop. When the pipe ends, the guardian sends SIGTERM to every child still registered and, when its
time is up, SIGKILL to its group. It runs with the standard library alone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, Self


class ChildGuardian:
    """The parent's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # not affected by signals to the parent's group
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def watch(self, pid: int, grace: float) -> None:
        self._send(f"+{pid} {grace:g}\n")

    def unwatch(self, pid: int) -> None:
        self._send(f"-{pid} 0\n")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # If the guardian was killed, children still see the end of their standard input.
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def guard(lines: IO[bytes]) -> None:
    """The guardian's side."""
    children: dict[int, float] = {}
    for line in lines:
        child, seconds = line[1:].split()
        if line.startswith(b"+"):
            children[int(child)] = float(seconds)
        else:
            children.pop(int(child), None)
    handles = {pid: handle for pid in children if (handle := _open(pid)) is not None}
    for handle in handles.values():
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    started = time.monotonic()
    for pid, grace in sorted(children.items(), key=lambda child: child[1]):
        if pid in handles:
            left = started + grace - time.monotonic()
            select.select([handles[pid]], [], [], max(left, 0.0))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    guard(sys.stdin.buffer)
