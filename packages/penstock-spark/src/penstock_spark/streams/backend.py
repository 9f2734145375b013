"""What the connector asks of a broker that keeps streams.

Offsets are exact; `next` is the offset a stream's next message will get, and everything below it
is there for good. A broker may know the end only from below: what `ends` says is never more than
there is, and at least what was safely there when it was asked.

Messages come as record batches of `RECORD_SCHEMA`: Penstock's own columns, with the properties as
the
AMQP content header they were published with. Taking that apart is `connector/columns.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from penstock.core.errors import PenstockError

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

#: The timestamp is when the broker took the message in, where the broker tells.
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
    """The messages of a stream from an offset to before another."""

    stream: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.stream}[{self.start}, {self.stop})"


#: By stream. One that is not there is not in it; None is one in which nothing shows itself: it is
#: empty, and where its next message will stand cannot be told before it has come.
Offsets = dict[str, int | None]


class StreamEnded(PenstockError):
    """The stream ends before the range that was asked for."""


class StreamBackend(Protocol):
    """One broker's streams, over connections that are made when needed and may break.

    Raises `OSError` or `ConnectionForced` for what may pass (`wire.amqp091.faults`), `NotFound`
    for a stream that is not there, `AccessRefused` for one this user may not read.
    """

    def names(self) -> set[str]:
        """All streams this user may read."""

    def first_offsets(self, names: Collection[str]) -> Offsets:
        """The oldest offset of each that is kept."""

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        """The next offset of each; `known` is what was found the last time.

        Where nothing shows itself the end is what it was.
        """

    def offset_at(self, name: str, moment_ms: int) -> int:
        """The first offset whose message, or its chunk, came at that moment or later."""

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        """The messages of the range, in order: no more than that, and less where some are gone.

        Raises `StreamEnded` after the last message there is, when the stream ends before the range.
        """

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        """Whether messages are missing where `found` comes in the place of `expected`.

        Not every broker gives every offset to a message.
        """

    def close(self) -> None: ...
