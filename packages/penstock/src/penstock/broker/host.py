"""The broker as terminals see it: users, virtual hosts, alarms, connection limits."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.broker.content_router import ContentRouter
from penstock.broker.kernel import Kernel
from penstock.broker.user import User
from penstock.broker.users import Users
from penstock.broker.vhost import VirtualHost
from penstock.core.logs import get_logger


class ClientConnection(Protocol):
    """A terminal, as the broker and its management API see it."""

    @property
    def name(self) -> str: ...

    def alarms_changed(self) -> None:
        """An alarm was set or cleared."""

    def end(self, reason: str) -> None:
        """Close the connection with a reason."""

    def abort(self) -> None:
        """Close without a reason."""

    def credential_expired(self) -> None:
        """Close because the user's credentials have expired."""

    def describe(self) -> dict[str, Any]: ...

    def describe_channels(self) -> list[dict[str, Any]]: ...

    def describe_consumers(self) -> list[dict[str, Any]]: ...


class CredentialExpiry:
    """Ends connections when the credentials of their users expire."""

    def __init__(self) -> None:
        self._timers: dict[ClientConnection, asyncio.TimerHandle] = {}

    def watch(self, client: ClientConnection, user: User, loop: asyncio.AbstractEventLoop) -> None:
        """Also called when a client has renewed its credentials."""
        self.forget(client)
        if user.expires is not None:
            seconds = max(0.0, user.expires - time.time())
            self._timers[client] = loop.call_later(seconds, client.credential_expired)

    def forget(self, client: ClientConnection) -> None:
        timer = self._timers.pop(client, None)
        if timer is not None:
            timer.cancel()


class LinkAcceptor(Protocol):
    """Accepts links of other brokers."""

    def accept_link(
        self, opened: Any, vhost: str, check_user: Callable[[], None]
    ) -> asyncio.Protocol:
        """Take over the connection of a broker that sent its open frame (`wire/padres`).

        `check_user` raises once its user may no longer link brokers.
        """


class Host(Protocol):
    kernel: Kernel
    users: Users
    vhosts: dict[str, VirtualHost]
    alarms: Alarms
    connection_limiter: ConnectionLimiter
    credential_expiry: CredentialExpiry
    clients: dict[ClientConnection, float]  #: and when they connected, in seconds since 1970
    product: dict[str, Any]  #: server properties
    draining: bool

    @property
    def links(self) -> LinkAcceptor: ...

    def router(self, vhost: str) -> ContentRouter[Any]:
        """The content router of a virtual host; its messages are envelopes of `wire/padres`."""

    def client_left(self, client: ClientConnection) -> None: ...


class Alarms:
    """Reasons to block publishers, by name (`disk`, `memory`). Peers, metrics and the log report
    them."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._reasons: dict[str, str] = {}
        self._on_change = on_change
        self.active = False  #: not a property: every read asks

    @property
    def names(self) -> list[str]:
        return list(self._reasons)

    @property
    def reason(self) -> str:
        return "; ".join(self._reasons.values())

    def set(self, name: str, reason: str) -> None:
        known = name in self._reasons
        self._reasons[name] = reason
        self.active = True
        if not known:
            self._on_change()

    def clear(self, name: str) -> None:
        if self._reasons.pop(name, None) is not None:
            self.active = bool(self._reasons)
            self._on_change()


#: The share of the process's descriptors reserved for the log.
RESERVED_SHARE: Final = 0.25

_log = get_logger("penstock.connections")


class UnauthenticatedConnection:
    __slots__ = ("_connection", "abort", "address")

    def __init__(self, connection: socket.socket, address: str, abort: Callable[[], None]) -> None:
        self._connection = connection
        self.address = address
        self.abort = abort

    @property
    def closed(self) -> bool:
        return self._connection.fileno() < 0


class ConnectionLimiter:
    """Limits connections of all listeners, because log files need descriptors, too.

    * A new socket gets the lowest free number. One at or above the ceiling is closed.
    * The number of connections without login is limited. Beyond it, the address with most of them
      loses its oldest.
    """

    __slots__ = ("_ceiling", "_logged_at", "_most", "_unauthenticated")

    def __init__(self, most: int, descriptors: int) -> None:
        self._ceiling = descriptors - int(descriptors * RESERVED_SHARE)
        self._most = min(most, max(1, self._ceiling // 2))
        self._logged_at = 0.0
        # By descriptor, the oldest first.
        self._unauthenticated: dict[int, UnauthenticatedConnection] = {}

    def has_room(self, connection: socket.socket) -> bool:
        if connection.fileno() < self._ceiling:
            return True
        self._warn("connection refused", reason="no descriptors left", limit=self._ceiling)
        self._forget_closed()
        if self._unauthenticated:
            self._close_oldest()
        return False

    def register(
        self, connection: socket.socket, address: str, abort: Callable[[], None]
    ) -> UnauthenticatedConnection:
        """`abort` closes the connection at once."""
        number = connection.fileno()
        self._unauthenticated.pop(number, None)  # the previous socket with this number is closed
        connection_entry = self._unauthenticated[number] = UnauthenticatedConnection(
            connection, address, abort
        )
        if len(self._unauthenticated) > self._most:
            self._forget_closed()
            if len(self._unauthenticated) > self._most:
                self._close_oldest()
        return connection_entry

    def mark_authenticated(self, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            self._unauthenticated.pop(connection.fileno(), None)

    def _forget_closed(self) -> None:
        for number in [number for number, one in self._unauthenticated.items() if one.closed]:
            del self._unauthenticated[number]

    def _close_oldest(self) -> None:
        [(address, count)] = Counter(
            one.address for one in self._unauthenticated.values()
        ).most_common(1)
        number = next(n for n, one in self._unauthenticated.items() if one.address == address)
        self._warn("connection closed", reason="too many without login", peer=address, count=count)
        self._unauthenticated.pop(number).abort()

    def _warn(self, event: str, **fields: Any) -> None:
        """At most once a second, so that a connect loop does not fill the disk."""
        now = time.monotonic()
        if now - self._logged_at >= 1.0:
            self._logged_at = now
            _log.warning(event, **fields)
