"""The file that users live in: read whole, written whole, never half.

One JSON document, readable by its owner only. Writing goes to a temporary file that replaces the
old one when it is safely on disk. Two processes that change it, the broker and a command, take
turns by `locked`; a reader needs no lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.broker.user import User, user_from_json, user_to_json
from penstock.core.data_directory import FileLock, private_directory
from penstock.core.errors import ConfigurationError


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

    def read(self) -> dict[str, User]:
        try:
            document = json.loads(self.path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{self.path}: not a JSON document: {error}") from None
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be read: {error.strerror}") from None
        users = document.get("users") if isinstance(document, dict) else None
        if not isinstance(users, dict):
            raise ConfigurationError(f"{self.path}: an object with the key 'users' belongs here")
        try:
            return {name: user_from_json(name, entry) for name, entry in users.items()}
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.path}: {error}") from None

    def write(self, users: Mapping[str, User]) -> None:
        document = {"users": {user.name: user_to_json(user) for user in users.values()}}
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
