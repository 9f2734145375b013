"""What many retained messages say alike: the exchange they came by and their properties.

A fleet's messages differ in their keys and bodies. The rest, the *envelope*, is kept once and
counted; a record has its number. An envelope is the exchange as a short string, as it begins a
route, and then the content header without its first twelve bytes (class, weight and body size).
"""

from __future__ import annotations

from penstock.broker.contract import Message

_CLASS_AND_WEIGHT = b"\x00\x3c\x00\x00"


class Envelopes:
    __slots__ = ("_counts", "_free", "_kept", "_numbers", "sizes")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._kept: list[bytes] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        self.sizes: list[int] = []  #: of each, by number

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, message: Message) -> int:
        """The number of a message's envelope, held once more."""
        envelope = message.route[: 1 + message.route[0]] + message.header[12:]
        number = self._numbers.get(envelope)
        if number is not None:
            self._counts[number] += 1
        elif self._free:
            number = self._numbers[envelope] = self._free.pop()
            self._kept[number], self._counts[number] = envelope, 1
            self.sizes[number] = len(envelope)
        else:
            number = self._numbers[envelope] = len(self._kept)
            self._kept.append(envelope)
            self._counts.append(1)
            self.sizes.append(len(envelope))
        return number

    def drop(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._kept[number]]
            self._kept[number] = b""
            self._free.append(number)

    def unfold(self, number: int, key: bytes, size: int) -> tuple[bytes, bytes]:
        """The route and the content header of a message with this envelope."""
        envelope = self._kept[number]
        start = 1 + envelope[0]
        route = envelope[:start] + bytes((len(key),)) + key
        return route, _CLASS_AND_WEIGHT + size.to_bytes(8, "big") + envelope[start:]


def key_of(route: bytes) -> bytes:
    return route[route[0] + 2 :]
