"""What a server says about itself in `postmaster.pid`, and whether to believe it.

The file outlives a server that was killed, and the process number in it may by then be anybody's.
So a server is taken to run only if that process works in the data directory, as every process of
PostgreSQL does.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.data_directory import private_opener
from penstock_store.embedded import cluster
from penstock_store.embedded.account import ServerAccount
from penstock_store.errors import StoreUnavailable

PID_FILE: Final = "postmaster.pid"
SOCKET_FILE: Final = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server: its process, the directory of its socket, whether it takes connections."""

    pid: int
    sockets: str
    port: int
    ready: bool


def read_pid_file(data: Path) -> Postmaster | None:
    """The server that runs on a data directory, if one does."""
    lines = _lines(data)
    try:
        found = Postmaster(
            pid=int(lines[0]),
            port=int(lines[3]),
            sockets=lines[4],
            ready=lines[7].strip() == "ready",
        )
    except (IndexError, ValueError):  # no file, or one that is being written
        return None
    return found if _works_in(found.pid, data) else None


def remove_stale_files(data: Path, sockets: Path) -> bool:
    """Remove what a server that is gone has left lying. Whether there was something.

    PostgreSQL does so itself, unless the number is that of a process of the same user, or of one
    that nobody has buried: then it refuses to start. Orphans of a killed server are why it is
    careful, so we are too.
    """
    if not _lines(data) or server_processes(data):
        return False
    for left in (data / PID_FILE, *sockets.glob(f"{SOCKET_FILE}*")):
        left.unlink(missing_ok=True)
    return True


def server_processes(data: Path) -> list[int]:
    """All processes that work in the data directory."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _works_in(int(entry.name), data)
    ]


def _works_in(pid: int, data: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:  # gone, or another user's and so not the server
        return False


def _lines(data: Path) -> list[str]:
    try:
        return (data / PID_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return []


# The server's process: started, waited for, stopped.
#
# It is started in a session of its own, so that Ctrl-C in a terminal reaches us and not it, and it
# outlives us if we are killed. Waiting for its end works for a child of ours as for one that was
# taken over.

#: A server that was killed first replays what it had not written, up to `max_wal_size`.
START_TIMEOUT_SECONDS: Final = 120.0
STOP_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02
_LOG_LINES: Final = 12


def start_server(data: Path, sockets: Path, log: Path, account: ServerAccount) -> Postmaster:
    """Start a server and wait until it takes connections."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": '"' + str(sockets).replace('"', '""') + '"',
        "unix_socket_permissions": "0700",
    }
    with open(log, "ab", opener=private_opener) as said:
        child = subprocess.Popen(
            [
                *(str(cluster.programs_folder() / "postgres"), "-D", str(data)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            **cluster.process_options(account),
        )
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = read_pid_file(data)
        if found is not None and found.ready:
            # It is not ours to wait for any more: whoever stops it may be another process.
            child.returncode = 0
            return found
        if child.poll() is not None:
            raise StoreUnavailable(f"the database in {data} did not start:\n{log_tail(log)}")
        time.sleep(_POLL_SECONDS)
    child.send_signal(signal.SIGQUIT)
    child.wait()
    raise StoreUnavailable(
        f"the database in {data} was not ready in {START_TIMEOUT_SECONDS:.0f} s:\n{log_tail(log)}"
    )


def wait_until_ready(data: Path, log: Path) -> Postmaster:
    """Wait for a server that runs already, and may be recovering."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while (found := read_pid_file(data)) is not None and time.monotonic() < deadline:
        if found.ready:
            return found
        time.sleep(_POLL_SECONDS)
    raise StoreUnavailable(f"the database in {data} does not get ready:\n{log_tail(log)}")


def stop_server(data: Path, log: Path) -> None:
    """End sessions, roll back what was not committed, write everything, and be gone."""
    found = read_pid_file(data)
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
        if not poll.poll(STOP_TIMEOUT_SECONDS * 1000):
            raise StoreUnavailable(
                f"the database in {data} did not stop in {STOP_TIMEOUT_SECONDS:.0f} s:\n"
                f"{log_tail(log)}"
            )
    finally:
        os.close(handle)
    _reap(found.pid)


def log_tail(log: Path) -> str:
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
