"""How many connections there may be, and how many of them nobody has logged in on.

Every connection takes a descriptor, and so does every file of the log. Two bounds keep connections
from taking them all:

* The system gives a new socket the lowest number that is free. A socket whose number is at or above
  the ceiling is one that the log may need, so it is closed.
* Of those who have not logged in only so many may wait. When one more comes, the address that has
  the most of them loses its oldest.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from penstock.core.logs import get_logger

#: The share of the descriptors of the process that connections leave to the log.
RESERVED: Final = 0.25

_log = get_logger("penstock.admission")


class Stranger:
    """A connection that has not logged in."""

    __slots__ = ("_connection", "abort", "address")

    def __init__(self, connection: socket.socket, address: str, abort: Callable[[], None]) -> None:
        self._connection = connection
        self.address = address
        self.abort = abort

    @property
    def closed(self) -> bool:
        return self._connection.fileno() < 0


class Admission:
    """Of one broker, for all its listeners."""

    __slots__ = ("_ceiling", "_most", "_strangers", "_told")

    def __init__(self, most: int, descriptors: int) -> None:
        """At most so many strangers, in a process that may have so many descriptors."""
        self._ceiling = descriptors - int(descriptors * RESERVED)
        self._most = min(most, max(1, self._ceiling // 2))
        self._told = 0.0
        self._strangers: dict[int, Stranger] = {}  # by descriptor, the oldest first

    def has_room(self, connection: socket.socket) -> bool:
        """Whether a new connection may stay."""
        if connection.fileno() < self._ceiling:
            return True
        self._tell("connection refused", reason="no descriptors left", limit=self._ceiling)
        self._forget_closed()
        if self._strangers:
            self._turn_out()
        return False

    def enter(self, connection: socket.socket, address: str, abort: Callable[[], None]) -> Stranger:
        """Somebody has connected; `abort` ends the connection at once."""
        number = connection.fileno()
        self._strangers.pop(number, None)  # whoever had the number is gone
        stranger = self._strangers[number] = Stranger(connection, address, abort)
        if len(self._strangers) > self._most:
            self._forget_closed()
            if len(self._strangers) > self._most:
                self._turn_out()
        return stranger

    def admit(self, transport: asyncio.BaseTransport) -> None:
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
