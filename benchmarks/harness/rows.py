"""Messages as rows of one table of bytes.

In every scenario all messages have the same length on the wire, so a run of them is a matrix of
octets: one template row, and a few columns that depend on the message's sequence number. `Rows`
writes such a run into a buffer it keeps, a thousand messages in one NumPy operation a column. The
publisher sends what it writes; the checker compares what arrives with it, octet by octet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Sequences = npt.NDArray[np.uint64]

#: The octets of a sequence number.
NUMBER: Final = 8

_NIBBLE_SHIFTS: Final = np.arange(28, -4, -4, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Column:
    """Octets that vary: where they start in the row, how many, and what they are."""

    offset: int
    width: int
    octets: Callable[[Sequences], Octets]

    def moved(self, by: int) -> Column:
        return Column(self.offset + by, self.width, self.octets)


def number(sequences: Sequences) -> Octets:
    """The sequence number itself, as an unsigned 64-bit integer."""
    return sequences.astype(">u8").view(np.uint8).reshape(-1, NUMBER)


def word(sequences: Sequences) -> Octets:
    """A word of eight letters that no other sequence number below 2³² has."""
    nibbles = (sequences[:, None] >> _NIBBLE_SHIFTS) & np.uint64(15)
    return nibbles.astype(np.uint8) + np.uint8(ord("a"))


def decimals(count: int, width: int) -> Octets:
    """The numbers below `count` in so many digits each, a row each."""
    return np.array([list(f"{each:0{width}}".encode()) for each in range(count)], np.uint8)


@dataclass(frozen=True, slots=True)
class Key:
    """A routing key or a topic, the same for all messages but for its columns.

    `columns` have offsets from the start of the key.
    """

    text: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """What a run of packets has in common, and where they differ."""

    octets: bytes
    columns: tuple[Column, ...]
    head: int  #: so many octets at the start say what kind of packet this is
    number_at: int | None = None  #: where the sequence number stands, if it does


def body(size: int) -> bytes:
    """What lies between the numbers: every octet there is, in turn, delimiters included."""
    return bytes(index & 255 for index in range(size))


def body_columns(start: int, size: int) -> tuple[Column, Column]:
    """A body starts and ends with its sequence number: none that was cut, joined or mixed up with
    a neighbour can pass."""
    return Column(start, NUMBER, number), Column(start + size - NUMBER, NUMBER, number)


class Rows:
    """Writes any run of up to `capacity` rows."""

    __slots__ = ("_steps", "_table", "capacity", "stride", "template")

    def __init__(self, template: Template, capacity: int) -> None:
        self.template = template
        self.stride = len(template.octets)
        self.capacity = capacity
        self._table: Octets = np.tile(np.frombuffer(template.octets, np.uint8), (capacity, 1))
        self._steps = np.arange(capacity, dtype=np.uint64)

    def write(self, sequences: Sequences) -> Octets:
        """The rows of these sequence numbers; valid until the next call."""
        rows = self._table[: len(sequences)]
        for column in self.template.columns:
            rows[:, column.offset : column.offset + column.width] = column.octets(sequences)
        return rows

    def run(self, first: int, count: int) -> Sequences:
        """The sequence numbers `first` and on."""
        return self._steps[:count] + np.uint64(first)

    def octets(self, first: int, count: int) -> memoryview:
        """A run of rows as one stretch of octets, to be sent."""
        return self.write(self.run(first, count)).data.cast("B")
