"""PUBACK both ways: those a publisher waits for, and those a subscriber gives."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker
from benchmarks.harness.rows import Octets
from benchmarks.mqtt import packets
from benchmarks.mqtt.layout import pubacks

_PUBACK: Final = np.frombuffer(packets.puback(0), np.uint8)


class Pubacks:
    """What a broker says to one publisher: an answer to each message, in their order."""

    __slots__ = ("_checker",)

    def __init__(self, total: int, capacity: int) -> None:
        """Of `total` messages; so many answers as `capacity` are checked at once."""
        self._checker = Checker(pubacks(capacity), total)

    @property
    def confirmed(self) -> int:
        return self._checker.received

    def room(self) -> memoryview:
        return self._checker.room()

    def took(self, octets: int, published: int) -> int:
        confirmed = self._checker.took(octets)
        if confirmed > published:
            raise WrongDelivery(f"{confirmed} messages are answered, {published} were published")
        return confirmed

    def finish(self) -> None:
        self._checker.finish()


class Acknowledgements:
    """What one subscriber says: an answer to each message, all that one read brought together.

    The numbers are the broker's to choose, but those it has not had an answer to must differ; so
    those that come in one read do.
    """

    __slots__ = ("_answered", "_free")

    def __init__(self, free: slice) -> None:
        self._free = free
        self._answered = 0

    def due(self, checker: Checker) -> bytes:
        numbers = checker.since(self._answered)[:, self._free]
        self._answered = checker.received
        _check(numbers)
        answers = np.tile(_PUBACK, (len(numbers), 1))
        answers[:, 2:] = numbers
        return answers.tobytes()


def _check(numbers: Octets) -> None:
    values = np.sort(np.ascontiguousarray(numbers).view(">u2").ravel())
    if len(values) and not values[0]:
        raise WrongDelivery("a message came with the packet number 0")
    if (values[1:] == values[:-1]).any():
        raise WrongDelivery("two messages came with the same packet number, neither answered yet")
