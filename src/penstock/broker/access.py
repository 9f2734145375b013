"""What the user of a connection may do, asked by the names AMQP's permissions go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.permissions import Kind, TopicKind
from penstock.broker.user import User
from penstock.broker.users import Users
from penstock.core.errors import AccessRefused

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.broker.vhost import VirtualHost


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

    def check_bind(self, exchange: Exchange, key: str, arguments: dict[str, Any]) -> None:
        """Whether a binding may read from an exchange."""
        self.check("read", "exchange", exchange.name)
        for topic in exchange.topics_of(key, arguments):
            self.check_topic("read", exchange.name, topic)

    def check_forward(self, exchange: str, key: str = "#") -> None:
        """Whether others' messages may be put into an exchange: by a binding, as dead letters, or
        as what another exchange cannot route. They have any topic, unless there is a key."""
        self.check("write", "exchange", exchange)
        self.check_topic("write", exchange, key)

    def check_dead_letters(self, vhost: VirtualHost, queue: str, arguments: dict[str, Any]) -> None:
        """Whether a queue may be declared with these arguments, as far as dead letters go."""
        name = arguments.get("x-dead-letter-exchange")
        if not isinstance(name, str):
            return
        self.check("read", "queue", queue)
        key = arguments.get("x-dead-letter-routing-key")
        exchange = vhost.exchanges.get(name)
        fixed = isinstance(key, str) and exchange is not None and exchange.topical
        self.check_forward(name, str(key) if fixed else "#")
