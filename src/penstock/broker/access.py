"""What the user of a connection may do, asked by the names AMQP's permissions go by."""

from __future__ import annotations

from penstock.broker.permissions import Kind, TopicKind
from penstock.broker.user import User
from penstock.broker.users import Users
from penstock.core.errors import AccessRefused


class Access:
    __slots__ = ("_users", "_vhost", "user")

    def __init__(self, users: Users, user: User, vhost: str) -> None:
        self._users = users
        self.user = user
        self._vhost = vhost

    def check(self, kind: Kind, what: str, name: str) -> None:
        """`what` is "queue" or "exchange"; raises unless it is allowed."""
        # The default exchange has no name of its own to write a permission for.
        if not self._users.may(self.user, self._vhost, kind, name or "amq.default"):
            raise AccessRefused(
                f"{kind} access to {what} '{name}' in vhost '{self._vhost}' "
                f"refused for user '{self.user.name}'"
            )

    def check_topic(self, kind: TopicKind, exchange: str, key: str) -> None:
        if not self._users.may_topic(self.user, self._vhost, exchange, kind, key):
            raise AccessRefused(
                f"{kind} access to topic '{key}' in exchange '{exchange}' in vhost "
                f"'{self._vhost}' refused for user '{self.user.name}'"
            )
