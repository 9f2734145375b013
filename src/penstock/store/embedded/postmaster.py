"""What a server says about itself in `postmaster.pid`, and whether to believe it.

The file outlives a server that was killed, and the process number in it may by then be anybody's.
So a server is taken to run only if that process works in the data directory, as every process of
PostgreSQL does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "postmaster.pid"
SOCKET: Final = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server: its process, the directory of its socket, whether it takes connections."""

    pid: int
    sockets: str
    port: int
    ready: bool


def read(data: Path) -> Postmaster | None:
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


def forget_stale(data: Path, sockets: Path) -> bool:
    """Remove what a server that is gone has left lying. Whether there was something.

    PostgreSQL does so itself, unless the number is that of a process of the same user, or of one
    that nobody has buried: then it refuses to start. Orphans of a killed server are why it is
    careful, so we are too.
    """
    if not _lines(data) or workers(data):
        return False
    for left in (data / FILE, *sockets.glob(f"{SOCKET}*")):
        left.unlink(missing_ok=True)
    return True


def workers(data: Path) -> list[int]:
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
        return (data / FILE).read_text(errors="replace").splitlines()
    except OSError:
        return []
