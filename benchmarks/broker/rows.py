"""Messages as rows of one table of bytes.

In every scenario all messages have the same length on the wire, so a run of them is a matrix of
octets: one template row, and a few columns that depend on the message's sequence number. `Rows`
writes such a run into a buffer it keeps, a thousand messages in one NumPy operation a column. The
publisher sends what it writes; the checker compares what arrives with it, octet by octet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.broker import frames

Octets = npt.NDArray[np.uint8]
Sequences = npt.NDArray[np.uint64]

_WORD_LETTERS: Final = 8
_NIBBLE_SHIFTS: Final = np.arange(28, -4, -4, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Column:
    """Octets that vary: where they start in the row, how many, and what they are."""

    offset: int
    width: int
    octets: Callable[[Sequences], Octets]


def number(sequences: Sequences) -> Octets:
    """The sequence number itself, as an unsigned 64-bit integer."""
    return sequences.astype(">u8").view(np.uint8).reshape(-1, 8)


def delivery_tag(sequences: Sequences) -> Octets:
    """A consumer's tags count its deliveries from one."""
    return number(sequences + np.uint64(1))


def word(sequences: Sequences) -> Octets:
    """A word of eight letters that no other sequence number below 2³² has."""
    nibbles = (sequences[:, None] >> _NIBBLE_SHIFTS) & np.uint64(15)
    return nibbles.astype(np.uint8) + np.uint8(ord("a"))


class Rows:
    """Writes any run of up to `capacity` rows."""

    __slots__ = ("_columns", "_steps", "_table", "capacity", "stride")

    def __init__(self, template: bytes, columns: Sequence[Column], capacity: int) -> None:
        self.stride = len(template)
        self.capacity = capacity
        self._table: Octets = np.tile(np.frombuffer(template, np.uint8), (capacity, 1))
        self._columns = tuple(columns)
        self._steps = np.arange(capacity, dtype=np.uint64)

    def write(self, first: int, count: int) -> Octets:
        """The rows of sequence numbers `first` and on; valid until the next call."""
        sequences = self._steps[:count] + np.uint64(first)
        rows = self._table[:count]
        for column in self._columns:
            rows[:, column.offset : column.offset + column.width] = column.octets(sequences)
        return rows

    def octets(self, first: int, count: int) -> memoryview:
        """The same as one stretch of octets, to be sent."""
        return self.write(first, count).data.cast("B")


@dataclass(frozen=True, slots=True)
class Key:
    """A routing key with a part that is the same for all messages or differs by a column.

    `columns` have offsets from the start of the key.
    """

    text: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The messages of a scenario on the wire, as published and as they must be delivered.

    The body starts and ends with the sequence number, so that neither a body that was cut or
    joined nor a neighbour's can pass; what lies between includes the frame-end octet.
    """

    exchange: str
    key: Key
    body_bytes: int
    persistent: bool = False

    def published(self, channel: int, capacity: int) -> Rows:
        method = frames.publish(channel, self.exchange, self.key.text)
        # The key ends before the flags octet and the frame end.
        key_start = len(method) - 2 - len(self.key.text)
        return self._rows(channel, method, key_start, [], capacity)

    def delivered(self, channel: int, consumer: str, capacity: int) -> Rows:
        method = frames.deliver(channel, consumer, 0, self.exchange, self.key.text)
        key_start = len(method) - 1 - len(self.key.text)
        tag_start = frames.PROLOGUE.size + 4 + len(frames.short_string(consumer))
        tag = Column(tag_start, 8, delivery_tag)
        return self._rows(channel, method, key_start, [tag], capacity)

    def _rows(
        self, channel: int, method: bytes, key_start: int, columns: list[Column], capacity: int
    ) -> Rows:
        body = bytes(index & 255 for index in range(self.body_bytes))
        template = method + frames.content(channel, body, persistent=self.persistent)
        body_end = len(template) - 1
        columns += [
            Column(body_end - self.body_bytes, 8, number),
            Column(body_end - 8, 8, number),
        ]
        columns += [
            Column(key_start + part.offset, part.width, part.octets) for part in self.key.columns
        ]
        return Rows(template, columns, capacity)
