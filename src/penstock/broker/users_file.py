"""The file that users live in: read whole, written whole, never half.

One JSON document, readable by its owner only. Writing goes to a temporary file that replaces the
old one when it is safely on disk. Two processes that change it, the broker and a command, take
turns by `locked`; a reader needs no lock.

The document has a version. One without is from before there was a user `anonymous`: it is read as
if it had one, and is written with a version the next time: a user who is deleted later stays
deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.broker.permissions import Permission
from penstock.broker.user import User, user_from_json, user_to_json
from penstock.core.data_directory import FileLock, private_directory
from penstock.core.errors import ConfigurationError

#: The user whose permissions clients without a name have, unless another is configured.
ANONYMOUS: Final = "anonymous"
VERSION: Final = 1


class Stamp(NamedTuple):
    """What tells one state of the file from another without reading it."""

    inode: int
    modified: int
    size: int


class UsersFile:
    """Reads and writes the users of one broker."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> Stamp | None:
        """None when there is no file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)

    def is_current(self) -> bool:
        """Whether the file there is has the version that is written today."""
        return "version" in self._document()

    def read(self) -> dict[str, User]:
        document = self._document()
        users = document.get("users")
        version = document.get("version", 0)
        if not isinstance(users, dict):
            raise ConfigurationError(f"{self.path}: an object with the key 'users' belongs here")
        if version not in range(VERSION + 1):
            raise ConfigurationError(
                f"{self.path}: version {version!r}, and this broker reads up to {VERSION}: "
                "start the newer one that wrote it"
            )
        try:
            found = {name: user_from_json(name, entry) for name, entry in users.items()}
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.path}: {error}") from None
        if version == 0:
            found.setdefault(ANONYMOUS, anonymous_user())
        return found

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads(self.path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{self.path}: not a JSON document: {error}") from None
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be read: {error.strerror}") from None
        return document if isinstance(document, dict) else {}

    def write(self, users: Mapping[str, User]) -> None:
        entries = {user.name: user_to_json(user) for user in users.values()}
        document = {"version": VERSION, "users": entries}
        text = json.dumps(document, indent=2, sort_keys=True) + "\n"
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        self._sync_directory()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold off every other writer, in this process or another."""
        private_directory(self.path.parent, traversable=True)
        with FileLock(self.path.with_name(f"{self.path.name}.lock")) as lock:
            lock.acquire(wait=True)
            yield

    def _sync_directory(self) -> None:
        # The new name is only as durable as the directory that holds it.
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def anonymous_user() -> User:
    """May publish and subscribe through MQTT's exchange; no password lets anybody in as it."""
    topics = Permission("", r"^amq\.topic$", r"^amq\.topic$")
    return User(ANONYMOUS, permissions={"/": topics})
