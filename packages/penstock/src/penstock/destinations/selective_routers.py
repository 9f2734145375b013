"""Exchange types that route a message to one of the bound destinations, or replay recent ones.

They are those of RabbitMQ's plugins: `x-consistent-hash`, `x-modulus-hash`, `x-random`,
`x-local-random` and `x-recent-history`.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, cast

from penstock.broker.contract import Binding, Exchange, Message, Queue, Sink
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PreconditionFailed
from penstock.core.units import parse_count
from penstock.destinations.exchange_types import FanoutRouter

#: Points on the ring for each unit of weight: the shares of equal weights differ by some percent.
_POINTS: Final = 128
_MAX_WEIGHT: Final = 1000
_HASH_PROPERTIES: Final = ("message_id", "correlation_id", "timestamp")
_HISTORY_LENGTH: Final = 20


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class ConsistentHashRouter:
    """`x-consistent-hash`: the same key goes to the same destination.

    The binding key is the destination's weight. A new binding takes over some keys of all others;
    the rest stay where they are, also after a restart. The key is the routing key, a header
    (`hash-header`) or a property (`hash-property`).
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._header = arguments.get("hash-header")
        self._property = arguments.get("hash-property")
        if self._header and self._property:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        for name, value in (("hash-header", self._header), ("hash-property", self._property)):
            if value is not None and not isinstance(value, str):
                raise PreconditionFailed(f"invalid arg '{name}': expected a string, got {value!r}")
        if self._property and self._property not in _HASH_PROPERTIES:
            raise PreconditionFailed(
                f"Unsupported property: {self._property}; use one of {', '.join(_HASH_PROPERTIES)}"
            )
        self.keyed = not (self._header or self._property)
        self._ring: list[tuple[int, Queue | Exchange]] = []
        self._hashes: list[int] = []

    def check(self, binding: Binding) -> None:
        weight = parse_count(binding.key)
        if weight is None:
            raise PreconditionFailed(f"The binding key must be an integer: {binding.key!r}")
        if not 0 < weight <= _MAX_WEIGHT:
            raise PreconditionFailed(f"The binding key must be from 1 to {_MAX_WEIGHT}")

    def add(self, binding: Binding) -> None:
        self._ring += self._points(binding)
        self._sort()

    def remove(self, binding: Binding) -> None:
        gone = {hash_ for hash_, _ in self._points(binding)}
        self._ring = [
            point
            for point in self._ring
            if point[1] is not binding.destination or point[0] not in gone
        ]
        self._sort()

    def _points(self, binding: Binding) -> list[tuple[int, Queue | Exchange]]:
        destination = binding.destination
        name = f"{destination.kind}\0{destination.name}\0".encode()
        count = _POINTS * (parse_count(binding.key) or 0)
        return [(_hash(name + number.to_bytes(4, "big")), destination) for number in range(count)]

    def _sort(self) -> None:
        self._ring.sort(key=lambda point: (point[0], point[1].kind, point[1].name))
        self._hashes = [hash_ for hash_, _ in self._ring]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if not self._ring:
            return ()
        place = bisect_right(self._hashes, _hash(self._key(key, message)))
        return (cast(Sink | Exchange, self._ring[place % len(self._ring)][1]),)

    def _key(self, key: bytes, message: Message) -> bytes:
        if self.keyed:
            return key
        properties = decode_header(message.header)
        if self._header:
            value = (properties.headers or {}).get(self._header)
        else:
            value = getattr(properties, cast(str, self._property))
        return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


class ModulusHashRouter(FanoutRouter):
    """`x-modulus-hash`: the hash of the routing key modulo the number of destinations."""

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        bound = sorted(self._bound, key=lambda each: (each.kind, each.name))
        return (cast(Sink | Exchange, bound[_hash(key) % len(bound)]),) if bound else ()


class RandomRouter(FanoutRouter):
    """`x-random` and, with one node, `x-local-random`."""

    keyed = False

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        bound = list(self._bound)
        return (cast(Sink | Exchange, random.choice(bound)),) if bound else ()


class RecentHistoryRouter(FanoutRouter):
    """`x-recent-history`: a fanout that sends the last messages to each new binding.

    They are held in memory. Messages with the header `x-recent-history-no-store`, and those that
    are spooled to disk for their size, are not held.
    """

    keyed = False

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        length = arguments.get("x-recent-history-length", _HISTORY_LENGTH)
        if type(length) is not int or length <= 0:
            raise PreconditionFailed(
                "Invalid argument, 'x-recent-history-length' must be a positive integer"
            )
        self._recent: deque[Message] = deque(maxlen=length)

    def add(self, binding: Binding) -> None:
        super().add(binding)
        for message in self._recent:
            if binding.destination.kind == "exchange":
                cast(Exchange, binding.destination).accept(message)
            else:
                cast(Queue, binding.destination).push(message)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if message.spool is None and not _is_unstored(message):
            self._recent.append(message)
        return super().match(key, message)


def _is_unstored(message: Message) -> bool:
    name = "x-recent-history-no-store"
    if name.encode() not in message.header:
        return False
    return (decode_header(message.header).headers or {}).get(name) is True
