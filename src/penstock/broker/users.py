"""The users of a broker: who they are, what they may do, and how that is changed.

Users live in one file. `Users` holds it in memory, answers the questions terminals ask (who is
this, may they), and writes every change through to the file before it holds. A change made by
another process is picked up by `refresh`, which logins ask for by themselves; answers given to
connections that are already open follow the change.

Questions are for the event loop. Changes wait for the disk, and hashing takes its time: a server
makes them in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.broker.passwords import Passwords
from penstock.broker.permissions import (
    Kind,
    Permission,
    TopicKind,
    TopicPermission,
    allows_client_id,
    checked_pattern,
)
from penstock.broker.user import User
from penstock.broker.user_definitions import users_from_definitions, users_to_definitions
from penstock.broker.users_file import Stamp, UsersFile, anonymous_user
from penstock.core.addresses import is_loopback
from penstock.core.errors import (
    AuthenticationFailed,
    ConfigurationError,
    NotFound,
    PreconditionFailed,
)
from penstock.core.logs import get_logger

#: Seconds between two looks at the file.
_LOOK_EVERY: Final = 1.0
#: Answers remembered for a user before starting over: names are the peer's to choose.
_ANSWERS: Final = 4096
#: Users with a well-known password, who may not come from afar.
LOOPBACK_ONLY: Final = frozenset({"guest"})

_log = get_logger("penstock.users")


class Users:
    """The users of one broker."""

    def __init__(
        self,
        path: Path,
        *,
        passwords: Passwords | None = None,
        loopback_only: frozenset[str] = LOOPBACK_ONLY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = UsersFile(path)
        self._passwords = passwords or Passwords()
        self._loopback_only = loopback_only
        self._clock = clock
        self._looked = clock()
        self._stamp: Stamp | None = None
        self.version = 0  #: grows with every change: answers given before may not hold
        self._users: dict[str, User] = {}
        self._answers: dict[str, dict[tuple[str, str, str], bool]] = {}

    # The file.

    def load(self) -> None:
        """Read the file; the first time there is none, and it is made with the first users.

        `guest` administers. `anonymous` has no password, so that nobody logs in by that name, and
        may publish and subscribe through MQTT's exchange and nothing else. A file from before there
        was one gets it here, once.
        """
        with self._file.locked():
            if self._file.stamp() is None:
                everything = Permission(".*", ".*", ".*")
                guest = User(
                    "guest", self._passwords.hash("guest"), ("administrator",), {"/": everything}
                )
                self._file.write({user.name: user for user in (guest, anonymous_user())})
            elif not self._file.is_current():
                self._file.write(self._file.read())
                _log.info("users file upgraded")
            self._read()

    def refresh(self) -> bool:
        """Take in what another process changed; whether there was anything to take in.

        A file that cannot be used leaves everything as it was and says so in the log, once.
        """
        now = self._clock()
        if now - self._looked < _LOOK_EVERY:
            return False
        self._looked = now
        stamp = self._file.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        try:
            self._read()
        except ConfigurationError as error:
            self._stamp = stamp
            _log.error("users file not usable, keeping the users known before", error=str(error))
            return False
        return True

    def _read(self) -> None:
        # The stamp first: a change between the two is then seen at the next look.
        stamp = self._file.stamp()
        self._hold(self._file.read(), stamp)

    def _hold(self, users: dict[str, User], stamp: Stamp | None) -> None:
        self._users = users
        self._stamp = stamp
        self._answers = {}
        self.version += 1

    # Who is this?

    async def authenticate(self, name: str, password: str | bytes, *, address: str) -> User:
        """The user with this name and password; `address` is where the peer is."""
        self.refresh()
        if name in self._loopback_only and not is_loopback(address):
            raise AuthenticationFailed(f"user '{name}' can only connect via localhost")
        user = self._users.get(name)
        right = await self._passwords.check(user.password_hash if user else None, password, address)
        current = self._users.get(name)
        if user is None or current is None or not right:
            raise AuthenticationFailed(f"user '{name}': invalid credentials")
        if current.password_hash != user.password_hash:
            raise AuthenticationFailed(f"user '{name}': the password has just been changed")
        return current

    def anonymous(self, name: str, *, address: str) -> User:
        """The user whose permissions a client has that gave no name."""
        user = self._users.get(name)
        if user is None:
            raise AuthenticationFailed(
                f"no user '{name}' for clients without a user name: add the user, or name another "
                "with broker.anonymous_user"
            )
        if name in self._loopback_only and not is_loopback(address):
            raise AuthenticationFailed(f"user '{name}' can only connect via localhost")
        return user

    def get(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user

    def all(self) -> list[User]:
        return sorted(self._users.values(), key=lambda user: user.name)

    # May they?

    def may_enter(self, user: User, vhost: str) -> bool:
        """Whether the user may open a connection to a virtual host."""
        current = self._users.get(user.name)
        return current is not None and vhost in current.permissions

    def may(self, user: User, vhost: str, kind: Kind, name: str) -> bool:
        """Whether the user may configure, write to or read from a destination."""
        question = (vhost, kind, name)
        answers = self._answers.setdefault(user.name, {})
        answer = answers.get(question)
        if answer is None:
            current = self._users.get(user.name)
            permission = current.permissions.get(vhost) if current else None
            answer = permission is not None and permission.allows(kind, name)
            if len(answers) >= _ANSWERS:
                answers.clear()
            answers[question] = answer
        return answer

    def may_topic(
        self,
        user: User,
        vhost: str,
        exchange: str,
        kind: TopicKind,
        routing_key: str,
        client_id: str = "",
    ) -> bool:
        """Whether the user may use a routing key with a topic exchange they may use."""
        current = self._users.get(user.name)
        if current is None:
            return False
        permission = current.topic_permissions.get(vhost, {}).get(exchange or "amq.default")
        if permission is None:
            return True
        variables = {"username": user.name, "vhost": vhost, "client_id": client_id}
        return permission.allows(kind, routing_key, variables)

    def may_use_client_id(self, user: User, client_id: str) -> bool:
        """Whether an MQTT connection of the user may have this client id."""
        current = self._users.get(user.name)
        return current is not None and allows_client_id(current.client_ids, client_id)

    def has_tag(self, user: User, tag: str) -> bool:
        """Whether the user has a tag now; one that was deleted has none."""
        current = self._users.get(user.name)
        return current is not None and tag in current.tags

    # Changes.

    def add(
        self, name: str, password: str, tags: tuple[str, ...] = (), client_ids: str = ""
    ) -> User:
        """A new user, who may do nothing yet."""
        if not name or len(name.encode("utf-8", "surrogatepass")) > 255:
            raise PreconditionFailed("a user name has 1 to 255 bytes")
        pattern = checked_pattern(client_ids)
        user = User(name, self._passwords.hash(password), tags, client_ids=pattern)

        def edit(users: dict[str, User]) -> None:
            if name in users:
                raise PreconditionFailed(f"user '{name}' exists already")
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
        """The client ids the user's MQTT connections may have; an empty pattern is any."""
        checked_pattern(pattern)
        self._revise(name, lambda user: replace(user, client_ids=pattern))

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
        """Of one exchange, or of all in the virtual host."""

        def revised(user: User) -> User:
            others = _without(user.topic_permissions, vhost)
            kept = _without(user.topic_permissions.get(vhost, {}), exchange) if exchange else {}
            return replace(user, topic_permissions={**others, vhost: kept} if kept else others)

        self._revise(name, revised)

    def export(self) -> dict[str, list[dict[str, Any]]]:
        """The users as RabbitMQ's definitions have them."""
        return users_to_definitions(self._users)

    def restore(self, definitions: Mapping[str, Any]) -> None:
        """Add or replace what RabbitMQ's definitions (or ours) hold; the rest stays."""
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
        """Edit what the file says now, which may be more than what was read last."""
        with self._file.locked():
            users = self._file.read() if self._file.stamp() is not None else {}
            edit(users)
            self._file.write(users)
            self._hold(users, self._file.stamp())


def _known(users: Mapping[str, User], name: str) -> User:
    user = users.get(name)
    if user is None:
        raise NotFound(f"no user '{name}'")
    return user


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}
