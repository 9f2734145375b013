"""Topic: the binding key is a pattern of words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding, Exchange, Queue, Sink
from penstock.drivers.trie import Trie


class Topic:
    keyed = True
    topical = True

    def __init__(self) -> None:
        self._trie: Trie[Queue | Exchange] = Trie()

    def check(self, binding: Binding) -> None:
        """Every key is a pattern."""

    def add(self, binding: Binding) -> None:
        self._trie.add(binding.key.encode(), binding.destination)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.key.encode(), binding.destination)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._trie.match(key)

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        return [key.decode("utf-8", "surrogateescape") for key in keys[1:]]

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return (key,)
