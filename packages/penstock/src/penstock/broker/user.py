"""Users and the users file.

`User` is a value: a change makes a new one. Reading the file is strict: a value of the wrong type
raises `ConfigurationError` with its location and the expected type.
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

USER_LIMITS: Final = ("max-connections", "max-channels")

Permissions = Mapping[str, Permission]
TopicPermissions = Mapping[str, Mapping[str, TopicPermission]]


@dataclass(frozen=True, slots=True)
class User:
    """Without a password hash, no password is accepted."""

    name: str
    password_hash: str = field(default="", repr=False)
    tags: tuple[str, ...] = ()
    permissions: Permissions = field(default_factory=dict)
    topic_permissions: TopicPermissions = field(default_factory=dict)
    client_ids: str = ""  #: pattern of allowed MQTT client ids; empty allows any
    limits: Mapping[str, int] = field(default_factory=dict)  #: max-connections, max-channels
    origin: str = ""  #: the backend that knows the user; empty for the users file
    expires: float | None = None  #: when its credentials expire, in seconds since the epoch


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
    if user.limits:
        written["limits"] = dict(user.limits)
    return written


def user_from_json(name: str, value: Any) -> User:
    location = f"users.{name}"
    entry = _object(value, location)
    return User(
        name,
        _accepted(
            location + ".password_hash",
            validate_password_hash,
            _text(entry, "password_hash", location),
        ),
        tags_from_json(entry.get("tags", []), location + ".tags"),
        {
            vhost: permission_from_json(granted, f"{location}.permissions.{vhost}")
            for vhost, granted in _member(entry, "permissions", location).items()
        },
        {
            vhost: {
                exchange: topic_permission_from_json(
                    granted, f"{location}.topic_permissions.{vhost}.{exchange}"
                )
                for exchange, granted in _object(
                    exchanges, f"{location}.topic_permissions.{vhost}"
                ).items()
            }
            for vhost, exchanges in _member(entry, "topic_permissions", location).items()
        },
        client_ids_from_json(entry, location),
        limits_from_json(entry, location),
    )


def limits_from_json(entry: dict[str, Any], location: str) -> dict[str, int]:
    limits = _member(entry, "limits", location)
    for name, value in limits.items():
        if name not in USER_LIMITS or type(value) is not int:
            raise ConfigurationError(
                f"{location}.limits.{name}: expected a whole number of {' or '.join(USER_LIMITS)}"
            )
    return {name: value for name, value in limits.items() if value >= 0}


def permission_from_json(value: Any, location: str) -> Permission:
    entry = _object(value, location)
    patterns = [_text(entry, kind, location) for kind in ("configure", "write", "read")]
    return _accepted(location, Permission, *patterns)


def topic_permission_from_json(value: Any, location: str) -> TopicPermission:
    entry = _object(value, location)
    patterns = [_text(entry, kind, location) for kind in ("write", "read")]
    return _accepted(location, TopicPermission, *patterns)


def client_ids_from_json(entry: dict[str, Any], location: str) -> str:
    return _accepted(
        location + ".client_ids", validate_pattern, _text(entry, "client_ids", location)
    )


def tags_from_json(value: Any, location: str) -> tuple[str, ...]:
    """Tags as a list or, as in older RabbitMQ, a string with commas."""
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ConfigurationError(f"{location}: expected a list of strings")
    return tuple(tag for tag in value if tag)


def _accepted(location: str, make: Callable[..., Made], *values: str) -> Made:
    """The result of `make`, or its error with the location."""
    try:
        return make(*values)
    except PreconditionFailed as error:
        raise ConfigurationError(f"{location}: {error}") from None


def _member(entry: dict[str, Any], key: str, location: str) -> dict[str, Any]:
    return _object(entry.get(key, {}), f"{location}.{key}")


def _object(value: Any, location: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{location}: expected an object")
    return value


def _text(entry: dict[str, Any], key: str, location: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise ConfigurationError(f"{location}.{key}: expected a string")
    return value


#: The default user of clients without a user name.
ANONYMOUS: Final = "anonymous"
VERSION: Final = 1


class UsersFileStamp(NamedTuple):
    """Identifies a version of the file without reading it."""

    inode: int
    modified: int
    size: int


class UsersFile:
    """The users file: one JSON document, readable by its owner only, replaced atomically.

    Writers (the broker, a command) exclude each other by `locked`; readers need no lock. A document
    without a version predates the user `anonymous`: it is read as if it had one and written with a
    version next time.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> UsersFileStamp | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return UsersFileStamp(found.st_ino, found.st_mtime_ns, found.st_size)

    def is_current(self) -> bool:
        """Whether the file has the current version."""
        return "version" in self._document()

    def read(self) -> dict[str, User]:
        document = self._document()
        users = document.get("users")
        version = document.get("version", 0)
        if not isinstance(users, dict):
            raise ConfigurationError(f"{self.path}: expected an object with the key 'users'")
        if version not in range(VERSION + 1):
            raise ConfigurationError(
                f"{self.path}: version {version!r} is newer than {VERSION}: "
                "start the newer broker that wrote it"
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
        """Exclude other writers, in this process or another."""
        private_directory(self.path.parent, traversable=True)
        with FileLock(self.path.with_name(f"{self.path.name}.lock")) as lock:
            lock.acquire(wait=True)
            yield

    def _sync_directory(self) -> None:
        # The new name is durable once the directory is synced.
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def anonymous_user() -> User:
    """May publish and subscribe through MQTT's exchange; has no password."""
    topics = Permission("", r"^amq\.topic$", r"^amq\.topic$")
    return User(ANONYMOUS, permissions={"/": topics})
