"""Fanout: everything goes to every destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Queue, Sink


class Fanout:
    keyed = True

    def __init__(self) -> None:
        self._bound: Counter[Queue | Exchange] = Counter()

    def check(self, binding: Binding) -> None:
        """Keys and arguments mean nothing here."""

    def add(self, binding: Binding) -> None:
        self._bound[binding.destination] += 1

    def remove(self, binding: Binding) -> None:
        self._bound[binding.destination] -= 1
        if not self._bound[binding.destination]:
            del self._bound[binding.destination]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._bound
