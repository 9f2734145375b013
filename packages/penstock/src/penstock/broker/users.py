"""The users of a broker: authentication, permissions and changes.

`Users` holds the users file in memory and writes every change to it first. `refresh` reads changes
of other processes; logins call it. Connections that are open follow changes.

Checks run on the event loop. Changes wait for the disk and hash passwords: a server makes them in a
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.auth.backend import AuthBackend, AuthChain
from penstock.broker.permissions import (
    Permission,
    PermissionKind,
    TopicPermission,
    TopicPermissionKind,
    allows_client_id,
    validate_pattern,
)
from penstock.broker.user import (
    User,
    UsersFile,
    UsersFileStamp,
    anonymous_user,
    client_ids_from_json,
    limits_from_json,
    permission_from_json,
    tags_from_json,
    topic_permission_from_json,
    user_to_json,
)
from penstock.core.addresses import is_loopback
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConfigurationError,
    NotFound,
    PreconditionFailed,
)
from penstock.core.logs import get_logger
from penstock.core.passwords import PasswordVerifier, validate_password_hash

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.broker.vhost import VirtualHost


#: Seconds between two checks of the file.
_REFRESH_SECONDS: Final = 1.0
#: Cached permission checks per user, before the cache is cleared: peers choose the names.
_MAX_CACHED: Final = 4096
#: The user that the first start creates, with a well-known password.
DEFAULT_USER: Final = "guest"
DEFAULT_PASSWORD: Final = "guest"  # noqa: S105 - public
#: Its hash: the first start need not make one of what everybody knows.
_DEFAULT_HASH: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1"
    "$mXWr8AVanGqSIt3D1jP+iQ$K+fIKXCGhyV7+K5ZtGoQZKHAX1mChz6PqVdDXE66uo0"
)
#: Allowed from localhost only.
LOOPBACK_USERS: Final = frozenset({DEFAULT_USER})

_log = get_logger("penstock.users")


def default_user() -> User:
    """The administrator that the first start creates."""
    everything = Permission(".*", ".*", ".*")
    return User(DEFAULT_USER, _DEFAULT_HASH, ("administrator",), {"/": everything})


class Users:
    def __init__(
        self,
        path: Path,
        *,
        passwords: PasswordVerifier | None = None,
        loopback_only: frozenset[str] = LOOPBACK_USERS,
        clock: Callable[[], float] = time.monotonic,
        backends: Callable[[AuthBackend], list[AuthBackend]] | None = None,
    ) -> None:
        """`backends` puts the users file into the order of authentication backends."""
        self._file = UsersFile(path)
        self._passwords = passwords or PasswordVerifier()
        self._loopback_only = loopback_only
        self._clock = clock
        self._checked_at = clock()
        self._stamp: UsersFileStamp | None = None
        self.version = 0  #: incremented by every change
        self._users: dict[str, User] = {}
        self._cache: dict[str, dict[tuple[str, str, str], bool]] = {}
        internal = InternalBackend(self)
        self._chain = AuthChain(backends(internal) if backends is not None else [internal])

    @property
    def path(self) -> Path:
        return self._file.path

    def load(self) -> None:
        """Read the file, or create it with the first users.

        `guest` is the administrator. `anonymous` has no password and may only use MQTT's exchange.
        A file from before there was an `anonymous` gets it once.
        """
        with self._file.locked():
            if self._file.stamp() is None:
                guest = default_user()
                self._file.write({user.name: user for user in (guest, anonymous_user())})
            elif not self._file.is_current():
                self._file.write(self._file.read())
                _log.info("users file upgraded")
            self._read()

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read changes of other processes; returns whether there were any.

        The file is checked once a second, or `at_once`. An invalid file is logged once and leaves
        the users as they were.
        """
        now = self._clock()
        if not at_once and now - self._checked_at < _REFRESH_SECONDS:
            return False
        self._checked_at = now
        stamp = self._file.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        try:
            self._read()
        except ConfigurationError as error:
            self._stamp = stamp
            _log.error("users file invalid", error=str(error))
            return False
        return True

    def _read(self) -> None:
        # The stamp first, so that a change between the two is read next time.
        stamp = self._file.stamp()
        self._hold(self._file.read(), stamp)

    def _hold(self, users: dict[str, User], stamp: UsersFileStamp | None) -> None:
        self._users = users
        self._stamp = stamp
        self._cache = {}
        self.version += 1

    async def authenticate(self, name: str, password: str | bytes, *, address: str) -> User:
        """By the first backend that accepts the login. Raises `AuthenticationFailed`; `address` is
        the peer's."""
        if isinstance(password, str):
            password = password.encode("utf-8", "surrogatepass")
        return await self._chain.authenticate(name, password, address=address)

    async def check_password(self, name: str, password: bytes, *, address: str) -> User:
        """The same by the users file alone."""
        self.refresh(at_once=True)
        if name in self._loopback_only and not is_loopback(address):
            raise AuthenticationFailed(f"user '{name}' can only connect via localhost")
        user = self._users.get(name)
        right = await self._passwords.check(user.password_hash if user else None, password, address)
        current = self._users.get(name)
        if user is None or current is None or not right:
            raise AuthenticationFailed(f"user '{name}': invalid credentials")
        if current.password_hash != user.password_hash:
            raise AuthenticationFailed(f"user '{name}': the password was changed")
        return current

    def anonymous(self, name: str, *, address: str) -> User:
        """The user of clients without a user name."""
        user = self._users.get(name)
        if user is None:
            raise AuthenticationFailed(
                f"no user '{name}' for clients without a user name: add the user, or set another "
                "with broker.anonymous_user"
            )
        if name in self._loopback_only and not is_loopback(address):
            raise AuthenticationFailed(f"user '{name}' can only connect via localhost")
        return user

    def certified(self, name: str, *, address: str) -> User:
        """The user that a verified client certificate names."""
        self.refresh()
        user = self._users.get(name)
        if user is None:
            raise AuthenticationFailed(f"no user '{name}' for the client certificate")
        if name in self._loopback_only and not is_loopback(address):
            raise AuthenticationFailed(f"user '{name}' can only connect via localhost")
        return user

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def get(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user

    def all(self) -> list[User]:
        return sorted(self._users.values(), key=lambda user: user.name)

    def _current(self, user: User) -> User | None:
        """The user as the users file has it now, or as another backend described it at login."""
        return user if user.origin else self._users.get(user.name)

    def can_access_vhost(self, user: User, vhost: str) -> bool:
        current = self._current(user)
        return current is not None and vhost in current.permissions

    def is_allowed(self, user: User, vhost: str, kind: PermissionKind, name: str) -> bool:
        if user.origin:
            granted = user.permissions.get(vhost)
            return granted is not None and granted.allows(kind, name)
        key = (vhost, kind, name)
        cached = self._cache.setdefault(user.name, {})
        allowed = cached.get(key)
        if allowed is None:
            current = self._users.get(user.name)
            permission = current.permissions.get(vhost) if current else None
            allowed = permission is not None and permission.allows(kind, name)
            if len(cached) >= _MAX_CACHED:
                cached.clear()
            cached[key] = allowed
        return allowed

    def is_topic_allowed(
        self,
        user: User,
        vhost: str,
        exchange: str,
        kind: TopicPermissionKind,
        routing_key: str,
        client_id: str = "",
    ) -> bool:
        """Whether the user may use a routing key of a topic exchange."""
        current = self._current(user)
        if current is None:
            return False
        permission = current.topic_permissions.get(vhost, {}).get(exchange or "amq.default")
        if permission is None:
            return True
        variables = {"username": user.name, "vhost": vhost, "client_id": client_id}
        return permission.allows(kind, routing_key, variables)

    def restricts_topics(self, user: User, vhost: str, exchange: str) -> bool:
        """Whether routing keys of an exchange have to be checked."""
        current = self._current(user)
        if current is None:
            return True
        return (exchange or "amq.default") in current.topic_permissions.get(vhost, {})

    def is_client_id_allowed(self, user: User, client_id: str) -> bool:
        current = self._current(user)
        return current is not None and allows_client_id(current.client_ids, client_id)

    def has_tag(self, user: User, tag: str) -> bool:
        """False for a user that was deleted."""
        current = self._current(user)
        return current is not None and tag in current.tags

    def add(
        self, name: str, password: str, tags: tuple[str, ...] = (), client_ids: str = ""
    ) -> User:
        """A new user without permissions."""
        if not name or len(name.encode("utf-8", "surrogatepass")) > 255:
            raise PreconditionFailed("user name must have 1 to 255 bytes")
        pattern = validate_pattern(client_ids)
        user = User(name, self._passwords.hash(password), tags, client_ids=pattern)

        def edit(users: dict[str, User]) -> None:
            if name in users:
                raise PreconditionFailed(f"user '{name}' already exists")
            users[name] = user

        self._change(edit)
        return user

    def delete(self, name: str) -> None:
        def edit(users: dict[str, User]) -> None:
            _known(users, name)
            del users[name]

        self._change(edit)

    def set_password(self, name: str, password: str) -> None:
        password_hash = self._passwords.hash(password)
        self._revise(name, lambda user: replace(user, password_hash=password_hash))

    def set_tags(self, name: str, tags: tuple[str, ...]) -> None:
        self._revise(name, lambda user: replace(user, tags=tags))

    def set_client_ids(self, name: str, pattern: str) -> None:
        """An empty pattern allows any client id."""
        validate_pattern(pattern)
        self._revise(name, lambda user: replace(user, client_ids=pattern))

    def set_limit(self, name: str, limit: str, value: int | None) -> None:
        """None, or a negative number as in RabbitMQ, removes the limit."""

        def revised(user: User) -> User:
            limits = {**_without(user.limits, limit)}
            if value is not None and value >= 0:
                limits[limit] = value
            return replace(user, limits=limits)

        self._revise(name, revised)

    def limit(self, user: User, name: str) -> int | None:
        current = self._current(user)
        return current.limits.get(name) if current is not None else None

    def set_permissions(self, name: str, vhost: str, permission: Permission) -> None:
        self._revise(
            name, lambda user: replace(user, permissions={**user.permissions, vhost: permission})
        )

    def clear_permissions(self, name: str, vhost: str) -> None:
        self._revise(
            name, lambda user: replace(user, permissions=_without(user.permissions, vhost))
        )

    def set_topic_permissions(
        self, name: str, vhost: str, exchange: str, permission: TopicPermission
    ) -> None:
        def revised(user: User) -> User:
            exchanges = {**user.topic_permissions.get(vhost, {}), exchange: permission}
            return replace(user, topic_permissions={**user.topic_permissions, vhost: exchanges})

        self._revise(name, revised)

    def clear_topic_permissions(self, name: str, vhost: str, exchange: str | None = None) -> None:
        """Of one exchange, or of all exchanges."""

        def revised(user: User) -> User:
            others = _without(user.topic_permissions, vhost)
            kept = _without(user.topic_permissions.get(vhost, {}), exchange) if exchange else {}
            return replace(user, topic_permissions={**others, vhost: kept} if kept else others)

        self._revise(name, revised)

    def export(self) -> dict[str, list[dict[str, Any]]]:
        """In the format of RabbitMQ's definitions."""
        return users_to_definitions(self._users)

    def restore(self, definitions: Mapping[str, Any]) -> None:
        """Add or replace users of RabbitMQ's definitions (or ours); other users stay."""
        self._change(
            lambda users: users.update(
                users_from_definitions(definitions, users, self._passwords.hash)
            )
        )

    def _revise(self, name: str, revised: Callable[[User], User]) -> None:
        def edit(users: dict[str, User]) -> None:
            users[name] = revised(_known(users, name))

        self._change(edit)

    def _change(self, edit: Callable[[dict[str, User]], None]) -> None:
        """Edit the current content of the file, which may be newer than memory."""
        with self._file.locked():
            users = self._file.read() if self._file.stamp() is not None else {}
            edit(users)
            self._file.write(users)
            self._hold(users, self._file.stamp())


class InternalBackend:
    """The users file as an authentication backend."""

    name = "internal"

    def __init__(self, users: Users) -> None:
        self._users = users

    async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
        return await self._users.check_password(name, password, address=address)


def _known(users: Mapping[str, User], name: str) -> User:
    user = users.get(name)
    if user is None:
        raise NotFound(f"no user '{name}'")
    return user


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


# Definitions in RabbitMQ's format. RabbitMQ's exports can be imported, with password hashes;
# RabbitMQ cannot check an exported argon2 hash and ignores `client_ids`. Import is all or nothing.

_ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256",
    "rabbit_password_hashing_sha512",
    "argon2id",
}


def users_to_definitions(users: Mapping[str, User]) -> dict[str, list[dict[str, Any]]]:
    definitions: dict[str, list[dict[str, Any]]] = {
        "users": [],
        "permissions": [],
        "topic_permissions": [],
    }
    for user in sorted(users.values(), key=lambda user: user.name):
        written = user_to_json(user)
        definitions["users"].append(
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": _algorithm(user.password_hash),
                "tags": written["tags"],
                "limits": dict(user.limits),
                **({"client_ids": user.client_ids} if user.client_ids else {}),
            }
        )
        for vhost, granted in written["permissions"].items():
            definitions["permissions"].append({"user": user.name, "vhost": vhost, **granted})
        for vhost, exchanges in written["topic_permissions"].items():
            for exchange, granted in exchanges.items():
                definitions["topic_permissions"].append(
                    {"user": user.name, "vhost": vhost, "exchange": exchange, **granted}
                )
    return definitions


def users_from_definitions(
    definitions: Mapping[str, Any],
    known: Mapping[str, User],
    hash_password: Callable[[str], str],
) -> dict[str, User]:
    """The users that the definitions add or change."""
    users: dict[str, User] = {}
    for location, entry in _entries(definitions, "users"):
        name = _definition_name(entry, "name", location)
        old = known.get(name, User(name))
        users[name] = replace(
            old,
            password_hash=_password_hash(entry, location, hash_password),
            tags=tags_from_json(entry.get("tags", []), f"{location}.tags"),
            # RabbitMQ's files have no `client_ids` and must not remove a restriction.
            client_ids=(
                client_ids_from_json(entry, location) if "client_ids" in entry else old.client_ids
            ),
            limits=limits_from_json(entry, location) if "limits" in entry else old.limits,
        )
    for location, entry in _entries(definitions, "permissions"):
        user = _definition_user(users, known, entry, location)
        granted = permission_from_json(entry, location)
        permissions = {**user.permissions, _definition_name(entry, "vhost", location): granted}
        users[user.name] = replace(user, permissions=permissions)
    for location, entry in _entries(definitions, "topic_permissions"):
        user = _definition_user(users, known, entry, location)
        vhost = _definition_name(entry, "vhost", location)
        topic = topic_permission_from_json(entry, location)
        exchanges = {
            **user.topic_permissions.get(vhost, {}),
            _definition_name(entry, "exchange", location): topic,
        }
        users[user.name] = replace(
            user, topic_permissions={**user.topic_permissions, vhost: exchanges}
        )
    return users


def _algorithm(password_hash: str) -> str:
    if password_hash.startswith("$argon2"):
        return "argon2id"
    # Base64 of a salt of four bytes and the digest: 48 characters for SHA-256.
    return f"rabbit_password_hashing_sha{256 if len(password_hash) <= 48 else 512}"


def _entries(definitions: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    entries = definitions.get(key, [])
    if not isinstance(entries, list):
        raise ConfigurationError(f"{key}: expected a list")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{key}[{number}]: expected an object")
    return [(f"{key}[{number}]", entry) for number, entry in enumerate(entries)]


def _definition_name(entry: Mapping[str, Any], key: str, location: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{location}.{key}: expected a name")
    return value


def _definition_user(
    users: Mapping[str, User], known: Mapping[str, User], entry: Mapping[str, Any], location: str
) -> User:
    name = _definition_name(entry, "user", location)
    user = users.get(name) or known.get(name)
    if user is None:
        raise ConfigurationError(f"{location}.user: no user '{name}'")
    return user


def _password_hash(
    entry: Mapping[str, Any], location: str, hash_password: Callable[[str], str]
) -> str:
    if isinstance(password := entry.get("password"), str) and password:
        return hash_password(password)
    algorithm = entry.get("hashing_algorithm", "rabbit_password_hashing_sha256")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        known = ", ".join(sorted(_ALGORITHMS))
        raise ConfigurationError(f"{location}.hashing_algorithm: {algorithm!r} is none of {known}")
    stored = entry.get("password_hash", "")
    if not isinstance(stored, str):
        raise ConfigurationError(f"{location}.password_hash: expected a string")
    try:
        return validate_password_hash(stored)
    except PreconditionFailed as error:
        raise ConfigurationError(f"{location}: {error}") from None


class AccessControl:
    """Permission checks of one connection; they raise `AccessRefused`."""

    __slots__ = ("_users", "_vhost", "user")

    def __init__(self, users: Users, user: User, vhost: str) -> None:
        self._users = users
        self.user = user
        self._vhost = vhost

    def check(self, kind: PermissionKind, what: str, name: str) -> None:
        """`what` is "queue" or "exchange"."""
        # The default exchange has this name in permissions.
        if not self._users.is_allowed(self.user, self._vhost, kind, name or "amq.default"):
            raise AccessRefused(
                f"{kind} access to {what} '{name}' in vhost '{self._vhost}' "
                f"refused for user '{self.user.name}'"
            )

    def check_topic(self, kind: TopicPermissionKind, exchange: str, key: str) -> None:
        if not self._users.is_topic_allowed(self.user, self._vhost, exchange, kind, key):
            raise AccessRefused(
                f"{kind} access to topic '{key}' in exchange '{exchange}' in vhost "
                f"'{self._vhost}' refused for user '{self.user.name}'"
            )

    def restricts_topics(self, exchange: str) -> bool:
        """Whether `check_topic` may refuse anything, until users or permissions change."""
        return self._users.restricts_topics(self.user, self._vhost, exchange)

    def check_bind(self, exchange: Exchange, key: str, arguments: dict[str, Any]) -> None:
        self.check("read", "exchange", exchange.name)
        for topic in exchange.topics_of(key, arguments):
            self.check_topic("read", exchange.name, topic)

    def check_forward(self, exchange: str, key: str = "#") -> None:
        """Whether messages of other publishers may be sent to an exchange: by a binding, as dead
        letters, or by an alternate exchange. Without a key they may have any topic."""
        self.check("write", "exchange", exchange)
        self.check_topic("write", exchange, key)

    def check_dead_letters(self, vhost: VirtualHost, queue: str, arguments: dict[str, Any]) -> None:
        """Check the dead-letter arguments of a queue declaration."""
        name = arguments.get("x-dead-letter-exchange")
        if not isinstance(name, str):
            return
        self.check("read", "queue", queue)
        key = arguments.get("x-dead-letter-routing-key")
        exchange = vhost.exchanges.get(name)
        fixed = isinstance(key, str) and exchange is not None and exchange.uses_topic_permissions
        self.check_forward(name, str(key) if fixed else "#")
