"""Runs one command and ends all its descendants with it, whatever session they are in.

A process that calls `setsid` leaves its group, and one whose parent ends leaves the process tree.
Linux re-parents the latter to the nearest ancestor that is a subreaper; this process is one, so all
descendants stay below it. It reads a socket whose other end only the worker has: a byte asks the
command to end, the end of the socket ends it, and all that is left below is killed. It imports
nothing of Penstock, so that it starts fast.

    python -I -S reaper.py SOCKET[,DESCRIPTOR...] WORD...

The descriptors are passed to the command. If the command cannot be run, its errno is written to the
socket.
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
#: How long to wait for processes that cannot be killed: another user's, or blocked by a disk.
KILL_SECONDS = 5.0
_LIBC = ctypes.CDLL(None)


def reaper_command(command: Sequence[str], control: int, *descriptors: int) -> list[str]:
    """The command line of a reaper with these descriptors."""
    numbers = ",".join(map(str, (control, *descriptors)))
    return [sys.executable, "-I", "-S", __file__, numbers, *command]


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended
            after_name = (process / "stat").read_bytes().rpartition(b")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(process.name))
    pids = list(children.get(root, ()))
    for pid in pids:  # the loop appends to the list
        pids += children.get(pid, ())
    return pids


def signal_all(number: signal.Signals) -> int:
    """Signal all descendants. Returns how many were signalled."""
    sent = 0
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, number)
            sent += 1
    return sent


def kill_all() -> None:
    until = time.monotonic() + KILL_SECONDS
    while signal_all(signal.SIGKILL) and time.monotonic() < until:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _prepare_child() -> None:
    """The command is killed if this process is."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run_command(command: subprocess.Popen[bytes], control: socket.socket) -> None:
    """Returns when it has ended, or is to be ended."""
    ended = os.pidfd_open(command.pid)
    while True:
        ready, _, _ = select.select([ended, control.fileno()], [], [])
        if ended in ready:
            return
        if not control.recv(1):
            return
        signal_all(signal.SIGTERM)


def main(words: list[str]) -> int:
    number, *handed_on = map(int, words[0].split(","))
    control = socket.socket(fileno=number)
    control.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the worker decides
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        command = subprocess.Popen(
            words[1:], start_new_session=True, preexec_fn=_prepare_child, pass_fds=handed_on
        )
    except OSError as error:
        control.send(str(error.errno).encode())
        return 127
    for each in handed_on:
        os.close(each)
    run_command(command, control)
    if command.poll() is None:
        signal_all(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            command.wait(KILL_SECONDS)
    kill_all()
    return -signal.SIGKILL if command.returncode is None else command.returncode


def _exit_like(status: int) -> None:
    """With the status of the command, or by the signal that ended it."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    _exit_like(main(sys.argv[1:]))
