"""The server's process: started, waited for, stopped.

It is started in a session of its own, so that Ctrl-C in a terminal reaches us and not it, and it
outlives us if we are killed. Waiting for its end works for a child of ours as for one that was
taken over.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from penstock.core.data_directory import private_opener
from penstock.store.embedded import postmaster, programs
from penstock.store.embedded.account import Account
from penstock.store.embedded.postmaster import Postmaster
from penstock.store.errors import StoreUnavailable

#: A server that was killed first replays what it had not written, up to `max_wal_size`.
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02
_LOG_LINES: Final = 12


def launch(data: Path, sockets: Path, log: Path, account: Account) -> Postmaster:
    """Start a server and wait until it takes connections."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": '"' + str(sockets).replace('"', '""') + '"',
        "unix_socket_permissions": "0700",
    }
    with open(log, "ab", opener=private_opener) as said:
        child = subprocess.Popen(
            [
                *(str(programs.folder() / "postgres"), "-D", str(data)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            **programs.surroundings(account),
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = postmaster.read(data)
        if found is not None and found.ready:
            # It is not ours to wait for any more: whoever stops it may be another process.
            child.returncode = 0
            return found
        if child.poll() is not None:
            raise StoreUnavailable(f"the database in {data} did not start:\n{last_words(log)}")
        time.sleep(_LOOK_SECONDS)
    child.send_signal(signal.SIGQUIT)
    child.wait()
    raise StoreUnavailable(
        f"the database in {data} was not ready in {START_SECONDS:.0f} s:\n{last_words(log)}"
    )


def await_ready(data: Path, log: Path) -> Postmaster:
    """Wait for a server that runs already, and may be recovering."""
    deadline = time.monotonic() + START_SECONDS
    while (found := postmaster.read(data)) is not None and time.monotonic() < deadline:
        if found.ready:
            return found
        time.sleep(_LOOK_SECONDS)
    raise StoreUnavailable(f"the database in {data} does not get ready:\n{last_words(log)}")


def stop(data: Path, log: Path) -> None:
    """End sessions, roll back what was not committed, write everything, and be gone."""
    found = postmaster.read(data)
    if found is None:
        return
    try:
        handle = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGINT)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(STOP_SECONDS * 1000):
            raise StoreUnavailable(
                f"the database in {data} did not stop in {STOP_SECONDS:.0f} s:\n{last_words(log)}"
            )
    finally:
        os.close(handle)
    _reap(found.pid)


def last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_LINES:])


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # another's child
        return
