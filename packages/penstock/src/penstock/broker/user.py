"""A user, and how one is written down.

`User` is a value: a change makes a new one. Its written form, one JSON object, is what the users
file holds. Reading is strict: a value of the wrong shape raises `ConfigurationError` saying where
it stands and what belongs there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from penstock.broker.permissions import Permission, TopicPermission, validate_pattern
from penstock.core.data_directory import FileLock, private_directory
from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock.core.passwords import validate_password_hash

Made = TypeVar("Made")

#: By virtual host.
Permissions = Mapping[str, Permission]
#: By virtual host and exchange.
TopicPermissions = Mapping[str, Mapping[str, TopicPermission]]


@dataclass(frozen=True, slots=True)
class User:
    """Someone the broker knows. Without a password hash, no password lets them in."""

    name: str
    password_hash: str = field(default="", repr=False)
    tags: tuple[str, ...] = ()
    permissions: Permissions = field(default_factory=dict)
    topic_permissions: TopicPermissions = field(default_factory=dict)
    client_ids: str = ""  #: those an MQTT connection may have, as a pattern; empty is any


def user_to_json(user: User) -> dict[str, Any]:
    written: dict[str, Any] = {
        "password_hash": user.password_hash,
        "tags": list(user.tags),
        "permissions": {
            vhost: {"configure": granted.configure, "write": granted.write, "read": granted.read}
            for vhost, granted in user.permissions.items()
        },
        "topic_permissions": {
            vhost: {
                exchange: {"write": granted.write, "read": granted.read}
                for exchange, granted in exchanges.items()
            }
            for vhost, exchanges in user.topic_permissions.items()
        },
    }
    if user.client_ids:
        written["client_ids"] = user.client_ids
    return written


def user_from_json(name: str, value: Any) -> User:
    place = f"users.{name}"
    entry = _object(value, place)
    return User(
        name,
        _accepted(
            place + ".password_hash", validate_password_hash, _text(entry, "password_hash", place)
        ),
        tags_from_json(entry.get("tags", []), place + ".tags"),
        {
            vhost: permission_from_json(granted, f"{place}.permissions.{vhost}")
            for vhost, granted in _member(entry, "permissions", place).items()
        },
        {
            vhost: {
                exchange: topic_permission_from_json(
                    granted, f"{place}.topic_permissions.{vhost}.{exchange}"
                )
                for exchange, granted in _object(
                    exchanges, f"{place}.topic_permissions.{vhost}"
                ).items()
            }
            for vhost, exchanges in _member(entry, "topic_permissions", place).items()
        },
        client_ids_from_json(entry, place),
    )


def permission_from_json(value: Any, place: str) -> Permission:
    entry = _object(value, place)
    patterns = [_text(entry, kind, place) for kind in ("configure", "write", "read")]
    return _accepted(place, Permission, *patterns)


def topic_permission_from_json(value: Any, place: str) -> TopicPermission:
    entry = _object(value, place)
    patterns = [_text(entry, kind, place) for kind in ("write", "read")]
    return _accepted(place, TopicPermission, *patterns)


def client_ids_from_json(entry: dict[str, Any], place: str) -> str:
    return _accepted(place + ".client_ids", validate_pattern, _text(entry, "client_ids", place))


def tags_from_json(value: Any, place: str) -> tuple[str, ...]:
    """Tags as a list or, as older RabbitMQ wrote them, in one string with commas."""
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ConfigurationError(f"{place}: a list of strings belongs here")
    return tuple(tag for tag in value if tag)


def _accepted(place: str, make: Callable[..., Made], *values: str) -> Made:
    """What `make` makes of the values, or its objection with the place where they stand."""
    try:
        return make(*values)
    except PreconditionFailed as error:
        raise ConfigurationError(f"{place}: {error}") from None


def _member(entry: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    return _object(entry.get(key, {}), f"{place}.{key}")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: an object belongs here")
    return value


def _text(entry: dict[str, Any], key: str, place: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise ConfigurationError(f"{place}.{key}: a string belongs here")
    return value


# The file that users live in: read whole, written whole, never half.
#
# One JSON document, readable by its owner only. Writing goes to a temporary file that replaces the
# old one when it is safely on disk. Two processes that change it, the broker and a command, take
# turns by `locked`; a reader needs no lock.
#
# The document has a version. One without is from before there was a user `anonymous`: it is read as
# if it had one, and is written with a version the next time: a user who is deleted later stays
# deleted.

#: The user whose permissions clients without a name have, unless another is configured.
ANONYMOUS: Final = "anonymous"
VERSION: Final = 1


class UsersFileStamp(NamedTuple):
    """What tells one state of the file from another without reading it."""

    inode: int
    modified: int
    size: int


class UsersFile:
    """Reads and writes the users of one broker."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> UsersFileStamp | None:
        """None when there is no file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return UsersFileStamp(found.st_ino, found.st_mtime_ns, found.st_size)

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
