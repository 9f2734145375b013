"""Runs one command and ends with it everything it has started, whatever session that is in.

A process that calls `setsid` leaves its group, and one whose parent ends leaves the tree it came
from. Linux hands the latter to the nearest ancestor that is a subreaper: this process is one, so
that all of a command stays below it. It listens to a socket whose other end only the worker has: a
byte asks the command to end, the end of the socket ends it, and all that is left below is killed.
A file of its own that needs nothing of ours, so that it starts in a moment.

    python -I -S reaper.py SOCKET[,DESCRIPTOR...] WORD...

The descriptors are handed on to the command. One that cannot be run is told by its error number.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: What cannot be killed (it is another user's, or waits for a disk) is not waited for any longer.
PATIENCE_SECONDS = 5.0
_LIBC = ctypes.CDLL(None)


def reaper_command(command: Sequence[str], orders: int, *descriptors: int) -> list[str]:
    """The words that run a command below a reaper, which is given these descriptors."""
    numbers = ",".join(map(str, (orders, *descriptors)))
    return [sys.executable, "-I", "-S", __file__, numbers, *command]


def descendants(root: int) -> list[int]:
    """Of a process, as they are now."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            after_name = (process / "stat").read_bytes().rpartition(b")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(process.name))
    found = list(children.get(root, ()))
    for pid in found:  # which grows meanwhile
        found += children.get(pid, ())
    return found


def signal_all(number: signal.Signals) -> int:
    """To everything below this process; how many could be sent it."""
    sent = 0
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, number)
            sent += 1
    return sent


def kill_all() -> None:
    """Returns when nothing is left below this process."""
    until = time.monotonic() + PATIENCE_SECONDS
    while signal_all(signal.SIGKILL) and time.monotonic() < until:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _prepare_child() -> None:
    """In the child: if this process is killed, so is the command."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run_command(command: subprocess.Popen[bytes], orders: socket.socket) -> None:
    """Until it has ended, or is to be ended."""
    ended = os.pidfd_open(command.pid)
    while True:
        ready, _, _ = select.select([ended, orders.fileno()], [], [])
        if ended in ready:
            return
        if not orders.recv(1):
            return
        signal_all(signal.SIGTERM)


def main(words: list[str]) -> int:
    number, *handed_on = map(int, words[0].split(","))
    orders = socket.socket(fileno=number)
    orders.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the worker decides, over the socket
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        command = subprocess.Popen(
            words[1:], start_new_session=True, preexec_fn=_prepare_child, pass_fds=handed_on
        )
    except OSError as error:
        orders.send(str(error.errno).encode())
        return 127
    for each in handed_on:
        os.close(each)
    run_command(command, orders)
    if command.poll() is None:
        signal_all(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            command.wait(PATIENCE_SECONDS)
    kill_all()
    return -signal.SIGKILL if command.returncode is None else command.returncode


def _exit_like(status: int) -> None:
    """As the command did: by the same signal, if one ended it."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    _exit_like(main(sys.argv[1:]))
