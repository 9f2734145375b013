"""Where an embedded server's socket lies: in its data directory, if the path will do.

A socket's path has to fit into 107 bytes. A data directory deep down gets a directory for its
socket among the system's temporary ones, closed to others like itself, while the server runs.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.errors import AccessRefused
from penstock.store.embedded.account import Account
from penstock.store.embedded.postmaster import SOCKET

_LONGEST: Final = 107
#: PostgreSQL makes a lock file beside the socket, whose name is longer.
_LOCK: Final = ".lock"


def directory(data: Path, account: Account) -> Path:
    """A directory that only the account (and root) may enter."""
    # A comma would part it in two wherever a list of hosts can stand.
    if len(os.fsencode(data / (SOCKET + _LOCK))) <= _LONGEST and "," not in str(data):
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"penstock-{account.uid}-{digest}"
    try:
        short.mkdir(mode=0o700)
        os.chown(short, account.uid, account.gid)
    except FileExistsError:
        _ours(short, account)
    return short


def forget(data: Path, account: Account) -> None:
    """Remove the directory of a server that has stopped; one that was killed leaves its socket."""
    place = directory(data, account)
    if place != data:
        with suppress(OSError):
            place.rmdir()


def _ours(short: Path, account: Account) -> None:
    """Anyone may make a directory among the temporary ones: one that is not ours is a trap."""
    status = short.lstat()
    private = stat.S_IMODE(status.st_mode) & 0o077 == 0
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and private):
        raise AccessRefused(f"{short} belongs to somebody else; the database's socket goes there")
