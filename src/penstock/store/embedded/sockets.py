"""Where an embedded server's socket lies: in its data directory, if the name is short enough.

A socket's path has to fit into 107 bytes. A data directory deep down gets a directory for its
socket among the system's temporary ones, closed to others like itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from penstock.core.errors import AccessRefused
from penstock.store.embedded.account import Account

_LONGEST: Final = 107
_SOCKET: Final = ".s.PGSQL.5432"
#: PostgreSQL makes a lock file beside the socket, whose name is longer.
_LOCK: Final = ".lock"


def directory(data: Path, account: Account) -> Path:
    """A directory that only the account (and root) may enter."""
    if len(os.fsencode(data / (_SOCKET + _LOCK))) <= _LONGEST:
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"penstock-{account.uid}-{digest}"
    try:
        short.mkdir(mode=0o700)
        os.chown(short, account.uid, account.gid)
    except FileExistsError:
        _ours(short, account)
    return short


def _ours(short: Path, account: Account) -> None:
    """Anyone may make a directory among the temporary ones: one that is not ours is a trap."""
    status = short.lstat()
    private = stat.S_IMODE(status.st_mode) & 0o077 == 0
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and private):
        raise AccessRefused(f"{short} belongs to somebody else; the database's socket goes there")
