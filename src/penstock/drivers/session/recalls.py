"""What is kept for those who come later: retained messages, drawn as the client takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from penstock.broker.contract import Message
from penstock.broker.sessions import Grant, Subscription
from penstock.drivers.session.grants import grant_of


class Recalls:
    __slots__ = ("_find", "_wanted")

    def __init__(self, find: Callable[[bytes], Message | None]) -> None:
        self._find = find
        self._wanted: deque[tuple[Iterator[bytes], Grant]] = deque()

    def add(self, keys: Iterable[bytes], subscription: Subscription) -> None:
        self._wanted.append((iter(keys), grant_of([subscription])))

    def next(self) -> tuple[Message, Grant] | None:
        """As it is now: what was kept when it was asked for may have been replaced, or gone."""
        while self._wanted:
            keys, grant = self._wanted[0]
            for key in keys:
                message = self._find(key)
                if message is not None:
                    return message, grant
            self._wanted.popleft()
        return None
