"""The interface of the connector to a broker with streams.

Offsets are exact; the next offset of a stream is that of its next message, and all messages below
it are durable. A broker may underestimate it, but never below what was durable when it was asked.

Messages are record batches of `RECORD_SCHEMA`, with the properties as the AMQP content header that
was published. `connector/columns.py` decodes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa

from penstock.core.errors import PenstockError

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

#: The timestamp is when the broker received the message, or null.
RECORD_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("exchange", _TEXT),
        ("routing_key", _TEXT),
        ("properties", pa.binary()),
        ("body", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The messages of a stream from `start` to before `stop`."""

    stream: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.stream}[{self.start}, {self.stop})"

    def split(self, count: int) -> list[StreamRange]:
        """Consecutive parts of about equal size."""
        edges = [self.start + len(self) * index // count for index in range(count + 1)]
        return [StreamRange(self.stream, *edge) for edge in pairwise(edges)]


#: By stream; a missing stream is omitted. None: the stream is empty, and the offset of its next
#: message is unknown.
Offsets = dict[str, int | None]


class StreamEnded(PenstockError):
    """The stream ends before the requested range does."""


#: The size of messages is estimated from this many.
_SAMPLE_MESSAGES: Final = 500


def estimate_limit(streams: StreamBackend, wanted: StreamRange, most: int) -> int:
    """`limit_bytes` for brokers that do not tell sizes: from the first messages of the range."""
    rows = size = 0
    sample = StreamRange(
        wanted.stream, wanted.start, min(wanted.start + _SAMPLE_MESSAGES, wanted.stop)
    )
    for batch in streams.read(sample):
        rows += batch.num_rows
        size += batch.column("properties").nbytes + batch.column("body").nbytes
        if size >= most:
            break
    return min(wanted.stop, wanted.start + max(1, most * rows // max(size, 1)))


class StreamBackend(Protocol):
    """The streams of a broker, over connections that are opened on demand and may fail.

    Raises a transient error (`wire.amqp091.errors.is_transient_amqp_error`), `NotFound` for a
    missing stream, `AccessRefused` for one that the user may not read.
    """

    def names(self) -> set[str]:
        """All streams that the user may read."""

    def first_offsets(self, names: Collection[str]) -> Offsets:
        """The oldest offset of each stream."""

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        """The next offset of each stream; `known` is the last result, kept for an empty stream."""

    def offset_at(self, name: str, moment_ms: int) -> int:
        """The offset of the first message, or its chunk, received at that time or later."""

    def limit_bytes(self, wanted: StreamRange, most: int) -> int:
        """The end of the range if it is to have at most so many bytes, or one message.

        Exact or estimated; bytes are those of content headers and bodies, about.
        """

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        """The messages of the range in order, without those that were removed.

        Raises `StreamEnded` after the last message if the stream ends before the range does.
        """

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        """Whether messages are missing if `found` follows instead of `expected`.

        Some brokers use offsets for entries of their own.
        """

    def close(self) -> None: ...
