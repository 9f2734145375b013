"""A way for one user through directories that are closed to others.

Root's data lie under `/root` by default, where the server's user may not go. The directories on
the way get an entry in their access-control list that lets this one user pass, and not look; no
one else gains anything. A file system without such lists leaves it to a person, who is told what
to do.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.store.embedded.account import Account

log = get_logger(__name__)

_ATTRIBUTE: Final = "system.posix_acl_access"
_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")  # tag, permissions, user or group
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY: Final = 0xFFFFFFFF
_PASS: Final = 1


def open_passage(target: Path, account: Account) -> None:
    """Let the account reach `target`, through all directories above it."""
    for directory in reversed(target.resolve().parents):
        status = directory.stat()
        if may_pass(status, account):
            continue
        entries = _entries(directory, status)
        # A `chmod` since then may have left our entry and taken its effect, through the mask.
        if entries.get((_USER, account.uid), 0) & entries.get((_MASK, _NOBODY), 0) & _PASS:
            continue
        try:
            os.setxattr(directory, _ATTRIBUTE, _packed(_let_through(entries, account.uid)))
        except OSError as error:
            raise ConfigurationError(
                f"{account.name}, who runs the embedded database, cannot pass {directory} "
                f"({error.strerror}): keep the data elsewhere (--data), or: chmod o+x {directory}"
            ) from error
        log.info("the database's user may pass", directory=str(directory), user=account.name)


def may_pass(status: os.stat_result, account: Account) -> bool:
    """Whether the plain mode of a directory lets the account through."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


_Entries = dict[tuple[int, int], int]


def _entries(directory: Path, status: os.stat_result) -> _Entries:
    """The list as it is; that of a directory without one says what its mode says."""
    try:
        packed = os.getxattr(directory, _ATTRIBUTE)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        mode = status.st_mode
        return {
            (_OWNER, _NOBODY): mode >> 6 & 7,
            (_GROUP, _NOBODY): mode >> 3 & 7,
            (_OTHER, _NOBODY): mode & 7,
        }
    return {
        (tag, who): allowed for tag, allowed, who in _ENTRY.iter_unpack(packed[len(_VERSION) :])
    }


def _let_through(entries: _Entries, uid: int) -> _Entries:
    changed = entries | {(_USER, uid): entries.get((_USER, uid), 0) | _PASS}
    # The mask bounds what every named entry and the group may do: it must not bound this.
    bound = entries.get((_MASK, _NOBODY), entries[_GROUP, _NOBODY])
    changed[_MASK, _NOBODY] = bound | _PASS
    return changed


def _packed(entries: _Entries) -> bytes:
    """In the order the system wants: by kind, and by number within a kind."""
    return _VERSION + b"".join(
        _ENTRY.pack(tag, entries[tag, who], who) for tag, who in sorted(entries)
    )
