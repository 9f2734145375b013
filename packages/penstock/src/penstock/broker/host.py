"""What a terminal finds around it: the broker, as far as a terminal may know it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.broker.content_routing import ContentRouter
from penstock.broker.kernel import Kernel
from penstock.broker.users import Users
from penstock.broker.vhost import VirtualHost
from penstock.core.logs import get_logger


class ClientConnection(Protocol):
    """A terminal as the broker and its management see it: somebody is connected."""

    name: str

    def alarms_changed(self) -> None:
        """Publishers are to wait, or may go on."""

    def end(self, reason: str) -> None:
        """Tell the client why, and close."""

    def abort(self) -> None:
        """Close without a word."""

    def describe(self) -> dict[str, Any]: ...

    def describe_channels(self) -> list[dict[str, Any]]: ...

    def describe_consumers(self) -> list[dict[str, Any]]: ...


class LinkAcceptor(Protocol):
    """The links to other brokers, as a terminal sees them."""

    def welcome(self, opened: Any, vhost: str, check_user: Callable[[], None]) -> asyncio.Protocol:
        """A broker has connected and said who it is (`wire/padres`): take its connection over.

        `check_user` raises once the user it came as may no longer link brokers.
        """


class Host(Protocol):
    kernel: Kernel
    users: Users
    vhosts: dict[str, VirtualHost]
    alarms: Alarms
    connection_limiter: ConnectionLimiter
    clients: dict[ClientConnection, None]
    product: dict[str, Any]  #: what the broker tells of itself
    draining: bool

    @property
    def links(self) -> LinkAcceptor: ...

    def router(self, vhost: str) -> ContentRouter[Any]:
        """Of the content space of a virtual host; its envelopes are those of `wire/padres`."""

    def client_left(self, client: ClientConnection) -> None:
        """A connection has ended."""


# Alarms: why publishers have to wait. Never silent: peers, metrics and the log all hear of it.


class Alarms:
    """The alarms of one broker: a name (`disk`, `memory`) and a reason for people."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._reasons: dict[str, str] = {}
        self._on_change = on_change

    @property
    def active(self) -> bool:
        return bool(self._reasons)

    @property
    def names(self) -> list[str]:
        return list(self._reasons)

    @property
    def reason(self) -> str:
        return "; ".join(self._reasons.values())

    def set(self, name: str, reason: str) -> None:
        known = name in self._reasons
        self._reasons[name] = reason
        if not known:
            self._on_change()

    def clear(self, name: str) -> None:
        if self._reasons.pop(name, None) is not None:
            self._on_change()


# How many connections there may be, and how many of them nobody has logged in on.
#
# Every connection takes a descriptor, and so does every file of the log. Two bounds keep
# connections from taking them all:
#
# * The system gives a new socket the lowest number that is free. A socket whose number is at or
# above
#   the ceiling is one that the log may need, so it is closed.
# * Of those who have not logged in only so many may wait. When one more comes, the address that has
#   the most of them loses its oldest.

#: The share of the descriptors of the process that connections leave to the log.
RESERVED_SHARE: Final = 0.25

_log = get_logger("penstock.connections")


class UnauthenticatedConnection:
    """A connection that has not logged in."""

    __slots__ = ("_connection", "abort", "address")

    def __init__(self, connection: socket.socket, address: str, abort: Callable[[], None]) -> None:
        self._connection = connection
        self.address = address
        self.abort = abort

    @property
    def closed(self) -> bool:
        return self._connection.fileno() < 0


class ConnectionLimiter:
    """Of one broker, for all its listeners."""

    __slots__ = ("_ceiling", "_most", "_strangers", "_told")

    def __init__(self, most: int, descriptors: int) -> None:
        """At most so many strangers, in a process that may have so many descriptors."""
        self._ceiling = descriptors - int(descriptors * RESERVED_SHARE)
        self._most = min(most, max(1, self._ceiling // 2))
        self._told = 0.0
        self._strangers: dict[
            int, UnauthenticatedConnection
        ] = {}  # by descriptor, the oldest first

    def has_room(self, connection: socket.socket) -> bool:
        """Whether a new connection may stay."""
        if connection.fileno() < self._ceiling:
            return True
        self._tell("connection refused", reason="no descriptors left", limit=self._ceiling)
        self._forget_closed()
        if self._strangers:
            self._turn_out()
        return False

    def register(
        self, connection: socket.socket, address: str, abort: Callable[[], None]
    ) -> UnauthenticatedConnection:
        """Somebody has connected; `abort` ends the connection at once."""
        number = connection.fileno()
        self._strangers.pop(number, None)  # whoever had the number is gone
        stranger = self._strangers[number] = UnauthenticatedConnection(connection, address, abort)
        if len(self._strangers) > self._most:
            self._forget_closed()
            if len(self._strangers) > self._most:
                self._turn_out()
        return stranger

    def mark_authenticated(self, transport: asyncio.BaseTransport) -> None:
        """Whoever is behind the transport has logged in."""
        connection = transport.get_extra_info("socket")
        if connection is not None:
            self._strangers.pop(connection.fileno(), None)

    def _forget_closed(self) -> None:
        for number in [number for number, one in self._strangers.items() if one.closed]:
            del self._strangers[number]

    def _turn_out(self) -> None:
        [(address, count)] = Counter(one.address for one in self._strangers.values()).most_common(1)
        number = next(n for n, one in self._strangers.items() if one.address == address)
        self._tell("connection closed", reason="too many not logged in", peer=address, count=count)
        self._strangers.pop(number).abort()

    def _tell(self, event: str, **facts: Any) -> None:
        """Once a second: whoever connects in a loop shall not fill the disk with it."""
        now = time.monotonic()
        if now - self._told >= 1.0:
            self._told = now
            _log.warning(event, **facts)
