"""The user of the embedded server: the current user, or `pgserver` for root.

PostgreSQL refuses to run as root. The system user `pgserver` has no password, shell or home; it is
created by `useradd` if it is missing. It gets access to root's data directory by entries in the
access control lists of the parent directories, which allow this one user to traverse them.
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

from penstock.core.data_directory import FileLock
from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger

log = get_logger(__name__)

SYSTEM_USER: Final = "pgserver"
#: Only root can write there.
_USER_LOCK: Final = Path("/run/penstock-user.lock")


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """Of the server's processes and files."""

    name: str
    uid: int
    gid: int

    @classmethod
    def of_this_process(cls) -> Self:
        uid = os.geteuid()
        entry = _system_user() if uid == 0 else pwd.getpwuid(uid)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @property
    def is_other_user(self) -> bool:
        return os.geteuid() != self.uid


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        pass
    lock = FileLock(_USER_LOCK)
    try:
        lock.acquire(wait=True)
        return _add_system_user()
    except (OSError, KeyError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and user {SYSTEM_USER} cannot be added: {reason}; "
            "run Penstock as another user, or give the URL of a PostgreSQL"
        ) from error
    finally:
        lock.release()


def _add_system_user() -> pwd.struct_passwd:
    """With the lock held: two `useradd` at once both succeed, and the user gets another id."""
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        pass
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    subprocess.run(
        [*command, "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
        check=True,
        capture_output=True,
        text=True,
    )
    log.info("system user added", user=SYSTEM_USER)
    return pwd.getpwnam(SYSTEM_USER)


_ACL_ATTRIBUTE: Final = "system.posix_acl_access"
_ACL_VERSION: Final = struct.pack("<I", 2)
_ACL_ENTRY: Final = struct.Struct("<HHI")  # tag, permissions, user or group
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_UNDEFINED: Final = 0xFFFFFFFF
_TRAVERSE: Final = 1


def grant_traversal(target: Path, account: ServerAccount) -> None:
    """Let the account reach `target` through its parent directories."""
    for directory in reversed(target.resolve().parents):
        status = directory.stat()
        if may_traverse(status, account):
            continue
        entries = _acl_entries(directory, status)
        # A later `chmod` may have disabled our entry through the mask.
        if entries.get((_USER, account.uid), 0) & entries.get((_MASK, _UNDEFINED), 0) & _TRAVERSE:
            continue
        try:
            os.setxattr(
                directory, _ACL_ATTRIBUTE, _packed_acl(_with_traversal(entries, account.uid))
            )
        except OSError as error:
            raise ConfigurationError(
                f"{account.name}, the user of the embedded database, cannot traverse {directory} "
                f"({error.strerror}): use another --data, or run: chmod o+x {directory}"
            ) from error
        log.info("directory traversal granted", directory=str(directory), user=account.name)


def may_traverse(status: os.stat_result, account: ServerAccount) -> bool:
    """By the mode of the directory."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


_AclEntries = dict[tuple[int, int], int]


def _acl_entries(directory: Path, status: os.stat_result) -> _AclEntries:
    """The access control list; without one, that of the mode."""
    try:
        packed = os.getxattr(directory, _ACL_ATTRIBUTE)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        mode = status.st_mode
        return {
            (_OWNER, _UNDEFINED): mode >> 6 & 7,
            (_GROUP, _UNDEFINED): mode >> 3 & 7,
            (_OTHER, _UNDEFINED): mode & 7,
        }
    return {
        (tag, who): allowed
        for tag, allowed, who in _ACL_ENTRY.iter_unpack(packed[len(_ACL_VERSION) :])
    }


def _with_traversal(entries: _AclEntries, uid: int) -> _AclEntries:
    changed = entries | {(_USER, uid): entries.get((_USER, uid), 0) | _TRAVERSE}
    # The mask limits named entries, so it must allow traversal.
    bound = entries.get((_MASK, _UNDEFINED), entries[_GROUP, _UNDEFINED])
    changed[_MASK, _UNDEFINED] = bound | _TRAVERSE
    return changed


def _packed_acl(entries: _AclEntries) -> bytes:
    """Sorted by tag and id, as the kernel requires."""
    return _ACL_VERSION + b"".join(
        _ACL_ENTRY.pack(tag, entries[tag, who], who) for tag, who in sorted(entries)
    )
