"""Checks that a consumer gets what was published: every message, once, in order, unaltered.

The stream of deliveries is compared with the octets it must consist of. Messages are counted as
their octets arrive, and checked when half a buffer of them is there or the end has come, because
one comparison of many costs as much as one of a few. Only when they differ is the first wrong
message taken apart to say what is wrong with it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.errors import WrongDelivery
from benchmarks.harness.order import InOrder, Order
from benchmarks.harness.rows import NUMBER, Octets, Rows, Template

_NOTHING: Final = slice(0, 0)


class Checker:
    """Takes a consumer's stream through the buffer it lends; raises at the first wrong octet.

    Use: read into `room()`, tell `took()` how many octets that were, and `finish()`. `free` are
    the octets of a row that are the broker's to choose.
    """

    __slots__ = (
        "_buffer",
        "_checked",
        "_expected",
        "_free",
        "_octets",
        "_order",
        "_used",
        "_view",
        "received",
        "stride",
        "total",
    )

    def __init__(
        self, expected: Rows, total: int, order: Order | None = None, free: slice = _NOTHING
    ) -> None:
        self.received = 0  #: messages that arrived whole
        self.total = total
        self.stride = expected.stride  #: the octets of one delivery
        self._checked = 0
        self._expected = expected
        self._order = order or InOrder()
        self._free = free
        self._buffer = bytearray(expected.capacity * expected.stride)
        self._view = memoryview(self._buffer)
        self._octets: Octets = np.frombuffer(self._buffer, np.uint8)
        self._used = 0

    def room(self) -> memoryview:
        """Where the next octets are to be put. What has been received is gone after this."""
        # A read into little room is a wasted system call: make room when half is used.
        if self._used * 2 > len(self._buffer):
            self.check()
        return self._view[self._used :]

    def took(self, octets: int) -> int:
        """How many messages have been received, with these octets."""
        self._used += octets
        self.received = self._checked + self._used // self.stride
        return self.received

    def since(self, received: int) -> Octets:
        """The rows that came after so many; to be asked for after each `took`."""
        whole = self._octets[: self._used // self.stride * self.stride]
        return whole.reshape(-1, self.stride)[received - self._checked :]

    def check(self) -> bytes:
        """Check what has been received; returns the beginning of a message not yet whole."""
        count = self._used // self.stride
        whole = count * self.stride
        self._compare(self._octets[:whole].reshape(count, self.stride))
        self._checked += count
        rest = self._used - whole
        self._buffer[:rest] = self._buffer[whole : self._used]
        self._used = rest
        return bytes(self._view[:rest])

    def finish(self) -> None:
        """All that was to come has come: say so if it has not, or if there was more."""
        rest = self.check()
        if self.received != self.total:
            raise WrongDelivery(f"{self.received} of {self.total} messages arrived")
        if rest:
            raise WrongDelivery(f"{len(rest)} octets arrived after the last message")

    def _compare(self, rows: Octets) -> None:
        expected = self._expected.write(self._order.expected(rows))
        expected[:, self._free] = rows[:, self._free]
        if not np.array_equal(rows, expected):
            wrong = int((rows != expected).any(axis=1).argmax())
            what = _difference(rows[wrong], expected[wrong], self._expected.template)
            raise WrongDelivery(f"delivery {self._checked + wrong}: {what}")


def _difference(row: Octets, expected: Octets, template: Template) -> str:
    if row[: template.head].tobytes() != expected[: template.head].tobytes():
        return f"this is no delivery: {row.tobytes()[:200]!r}"
    if template.number_at is not None:
        where = slice(template.number_at, template.number_at + NUMBER)
        number, due = (int.from_bytes(octets[where].tobytes()) for octets in (row, expected))
        if number > due:
            return f"message {number} came in its place: {number - due} missing, or out of order"
        if number < due:
            return f"message {number} came in its place: delivered twice, or out of order"
    at = int((row != expected).argmax())
    return f"octet {at} is {row[at]:#04x} and should be {expected[at]:#04x}"
