"""What the user of a connection may do, in the permissions that AMQP has too.

Publishing asks to write to the exchange and with the key; subscribing to read from the exchange
and by the filter's key. The session's queue is the client's own: a client id may be tied to a user
(`Users.may_use_client_id`), but needs no permission to configure.
"""

from __future__ import annotations

from penstock.broker.user import User
from penstock.broker.users import Users


class Access:
    __slots__ = ("_client_id", "_exchange", "_users", "_vhost", "user")

    def __init__(self, users: Users, user: User, vhost: str, exchange: str, client_id: str) -> None:
        self._users = users
        self.user = user
        self._vhost = vhost
        self._exchange = exchange
        self._client_id = client_id

    def may_publish(self, key: str) -> bool:
        users, user, vhost, exchange = self._users, self.user, self._vhost, self._exchange
        return users.may(user, vhost, "write", exchange) and users.may_topic(
            user, vhost, exchange, "write", key, self._client_id
        )

    def may_subscribe(self, key: str) -> bool:
        users, user, vhost, exchange = self._users, self.user, self._vhost, self._exchange
        return users.may(user, vhost, "read", exchange) and users.may_topic(
            user, vhost, exchange, "read", key, self._client_id
        )
