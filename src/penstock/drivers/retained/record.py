"""A retained message as memory holds it: one bytes object, a value of the tree.

offset i64     where it stands in the log, or NOWHERE
deadline i64   when it expires, in milliseconds since the epoch, or 0
envelope u32   the number of its envelope
flags u8       the message's, as in the contract
spooled u8     whether the body lies in a file; then its size, i64, stands for it
body
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

#: The offset of what is kept in memory only.
NOWHERE: Final = -1

_FIXED: Final = Struct("<qqIBB")
_SIZE: Final = Struct("<q")

#: Where the body begins.
BODY_AT: Final = _FIXED.size


class Record(NamedTuple):
    offset: int
    deadline: int
    envelope: int
    flags: int
    spooled: bool
    body: bytes  #: empty when it is spooled
    size: int  #: of the body, wherever it lies

    def expired(self, now: int) -> bool:
        return 0 < self.deadline <= now


def pack(
    offset: int, deadline: int, envelope: int, flags: int, body: bytes, spooled_size: int | None
) -> bytes:
    if spooled_size is None:
        return _FIXED.pack(offset, deadline, envelope, flags, 0) + body
    return _FIXED.pack(offset, deadline, envelope, flags, 1) + _SIZE.pack(spooled_size)


def unpack(packed: bytes) -> Record:
    offset, deadline, envelope, flags, spooled = _FIXED.unpack_from(packed)
    if spooled:
        (size,) = _SIZE.unpack_from(packed, BODY_AT)
        return Record(offset, deadline, envelope, flags, True, b"", size)
    body = packed[BODY_AT:]
    return Record(offset, deadline, envelope, flags, False, body, len(body))


def offset_of(packed: bytes) -> int:
    return int.from_bytes(packed[:8], "little", signed=True)


def at_offset(packed: bytes, offset: int) -> bytes:
    """The same record at another place in the log."""
    return offset.to_bytes(8, "little", signed=True) + packed[8:]
