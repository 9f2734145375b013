"""Who runs the embedded server: whoever runs us, except that PostgreSQL refuses root.

For root there is a system user of its own, `pgserver`, made by `useradd` when it is missing. It
has no password, no shell and no home. The server's directory belongs to it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: The name the wheel's own code would use too.
SYSTEM_USER: Final = "pgserver"


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The user and group the server's processes and files belong to."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of_this_process(cls) -> Self:
        uid = os.geteuid()
        entry = _system_user() if uid == 0 else pwd.getpwuid(uid)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @property
    def other(self) -> bool:
        """Whether it is not ours: programs have to be run as this user."""
        return os.geteuid() != self.uid


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        pass
    log.info("adding a system user to run the embedded database", user=SYSTEM_USER)
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    try:
        subprocess.run(
            [*command, "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            check=True,
            capture_output=True,
            text=True,
        )
        return pwd.getpwnam(SYSTEM_USER)
    except (OSError, KeyError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER} could not be "
            f"added: {reason}; run Penstock as another user, or give the URL of a PostgreSQL"
        ) from error


# A way for one user through directories that are closed to others.
#
# Root's data lie under `/root` by default, where the server's user may not go. The directories on
# the way get an entry in their access-control list that lets this one user pass, and not look; no
# one else gains anything. A file system without such lists leaves it to a person, who is told what
# to do.

_ACL_ATTRIBUTE: Final = "system.posix_acl_access"
_ACL_VERSION: Final = struct.pack("<I", 2)
_ACL_ENTRY: Final = struct.Struct("<HHI")  # tag, permissions, user or group
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY: Final = 0xFFFFFFFF
_TRAVERSE: Final = 1


def grant_traversal(target: Path, account: ServerAccount) -> None:
    """Let the account reach `target`, through all directories above it."""
    for directory in reversed(target.resolve().parents):
        status = directory.stat()
        if may_traverse(status, account):
            continue
        entries = _acl_entries(directory, status)
        # A `chmod` since then may have left our entry and taken its effect, through the mask.
        if entries.get((_USER, account.uid), 0) & entries.get((_MASK, _NOBODY), 0) & _TRAVERSE:
            continue
        try:
            os.setxattr(
                directory, _ACL_ATTRIBUTE, _packed_acl(_with_traversal(entries, account.uid))
            )
        except OSError as error:
            raise ConfigurationError(
                f"{account.name}, who runs the embedded database, cannot pass {directory} "
                f"({error.strerror}): keep the data elsewhere (--data), or: chmod o+x {directory}"
            ) from error
        log.info("the database's user may pass", directory=str(directory), user=account.name)


def may_traverse(status: os.stat_result, account: ServerAccount) -> bool:
    """Whether the plain mode of a directory lets the account through."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


_AclEntries = dict[tuple[int, int], int]


def _acl_entries(directory: Path, status: os.stat_result) -> _AclEntries:
    """The list as it is; that of a directory without one says what its mode says."""
    try:
        packed = os.getxattr(directory, _ACL_ATTRIBUTE)
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
        (tag, who): allowed
        for tag, allowed, who in _ACL_ENTRY.iter_unpack(packed[len(_ACL_VERSION) :])
    }


def _with_traversal(entries: _AclEntries, uid: int) -> _AclEntries:
    changed = entries | {(_USER, uid): entries.get((_USER, uid), 0) | _TRAVERSE}
    # The mask bounds what every named entry and the group may do: it must not bound this.
    bound = entries.get((_MASK, _NOBODY), entries[_GROUP, _NOBODY])
    changed[_MASK, _NOBODY] = bound | _TRAVERSE
    return changed


def _packed_acl(entries: _AclEntries) -> bytes:
    """In the order the system wants: by kind, and by number within a kind."""
    return _ACL_VERSION + b"".join(
        _ACL_ENTRY.pack(tag, entries[tag, who], who) for tag, who in sorted(entries)
    )
