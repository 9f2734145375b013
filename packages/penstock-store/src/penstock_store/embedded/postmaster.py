"""The server process: detect, start, wait and stop.

`postmaster.pid` survives a killed server, and its process id may be reused. So a server counts as
running only if the process has the data directory as working directory, as PostgreSQL's have. The
server runs in its own session: Ctrl-C does not reach it, and it survives a crash of Penstock.
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
    """A running server, as its pid file describes it."""

    pid: int
    sockets: str  #: directory
    port: int
    ready: bool


def read_pid_file(data: Path) -> Postmaster | None:
    """The server of a data directory, if it runs."""
    lines = _lines(data)
    try:
        found = Postmaster(
            pid=int(lines[0]),
            port=int(lines[3]),
            sockets=lines[4],
            ready=lines[7].strip() == "ready",
        )
    except (IndexError, ValueError):  # no file, or it is being written
        return None
    return found if _has_cwd(found.pid, data) else None


def remove_stale_files(data: Path, sockets: Path) -> bool:
    """Remove pid file and socket of a killed server; returns whether there were any.

    PostgreSQL refuses to start if the process id in the file exists. As PostgreSQL, we keep the
    files while child processes of the killed server are running.
    """
    if not _lines(data) or server_processes(data):
        return False
    for file in (data / PID_FILE, *sockets.glob(f"{SOCKET_FILE}*")):
        file.unlink(missing_ok=True)
    return True


def server_processes(data: Path) -> list[int]:
    """Processes with this working directory."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _has_cwd(int(entry.name), data)
    ]


def _has_cwd(pid: int, data: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:  # ended, or of another user
        return False


def _lines(data: Path) -> list[str]:
    try:
        return (data / PID_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return []


#: After a crash the server replays the log, up to `max_wal_size`.
START_TIMEOUT_SECONDS: Final = 120.0
STOP_TIMEOUT_SECONDS: Final = 60.0
#: A killed process is listed until its memory is freed; its child processes then end by themselves.
END_TIMEOUT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_LOG_LINES: Final = 12


def start_server(data: Path, sockets: Path, log: Path, account: ServerAccount) -> Postmaster:
    """Start a server and wait until it accepts connections."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": '"' + str(sockets).replace('"', '""') + '"',
        "unix_socket_permissions": "0700",
    }
    with open(log, "ab", opener=private_opener) as output:
        child = subprocess.Popen(
            [
                *(str(cluster.programs_folder() / "postgres"), "-D", str(data)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **cluster.process_options(account),
        )
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = read_pid_file(data)
        if found is not None and found.ready:
            child.returncode = 0  # another process may stop the server: do not wait for it
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
    """Wait for a running server, which may be in recovery."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while (found := read_pid_file(data)) is not None and time.monotonic() < deadline:
        if found.ready:
            return found
        time.sleep(_POLL_SECONDS)
    raise StoreUnavailable(f"the database in {data} did not become ready:\n{log_tail(log)}")


def has_ended(pid: int, timeout: float = END_TIMEOUT_SECONDS) -> bool:
    """Wait for the end of a process that was killed or is stopping."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(handle)


def wait_for_orphans(data: Path) -> None:
    """Wait for child processes of a killed server: PostgreSQL does not start beside them."""
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while _lines(data) and server_processes(data) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def stop_server(data: Path, log: Path) -> None:
    """A fast shutdown: sessions are closed, open transactions rolled back."""
    found = read_pid_file(data)
    if found is None:
        return
    try:
        os.kill(found.pid, signal.SIGINT)
    except ProcessLookupError:
        return
    if not has_ended(found.pid, STOP_TIMEOUT_SECONDS):
        raise StoreUnavailable(
            f"the database in {data} did not stop in {STOP_TIMEOUT_SECONDS:.0f} s:\n{log_tail(log)}"
        )
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
    except ChildProcessError:  # not our child
        return
