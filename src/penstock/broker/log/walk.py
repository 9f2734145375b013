"""Walking a segment file from chunk to chunk, past whatever was damaged.

A chunk's header says where the next one begins. Where there is no valid header, the walk looks
for the next one and takes it only if it can be true: its payload matches its checksum, and its
offsets fit the stretch that was skipped. So the image of a segment inside a message's body is not
mistaken for a part of this one. The walk reads; what to cut and whom to tell is the caller's.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.broker.log.chunk import (
    HEADER_BYTES,
    MAGIC,
    SMALLEST_MESSAGE,
    Header,
    decode_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Found(NamedTuple):
    """A chunk with a valid header; `sound` says whether the payload matches its checksum."""

    position: int
    header: Header
    sound: bool


class Damage(NamedTuple):
    """A stretch that holds no chunk."""

    position: int
    stop: int


@contextmanager
def mapped(fd: int) -> Iterator[bytes | mmap.mmap]:
    """The file's bytes, without reading them all into memory."""
    if not os.fstat(fd).st_size:  # an empty file cannot be mapped
        yield b""
        return
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        yield data


def walk(data: bytes | mmap.mmap, base: int, *, verify: bool) -> Iterator[Found | Damage]:
    """Every chunk and every damaged stretch, in order. Payloads are checked if `verify`."""
    size, position, expected = len(data), 0, base
    while position < size:
        header = decode_header(data, position)
        if header is not None and header.base >= expected:
            end = position + header.file_bytes
            if end > size:  # torn while it was written: nothing can follow
                yield Damage(position, size)
                return
            yield Found(position, header, not verify or _matches(data, position, header))
            expected = header.end
        else:
            end = _resume(data, position, expected)
            yield Damage(position, end)
        position = end


def _matches(data: bytes | mmap.mmap, position: int, header: Header) -> bool:
    start = position + HEADER_BYTES
    with memoryview(data) as view, view[start : start + header.payload_bytes] as payload:
        return crc32(payload) == header.payload_crc


def _resume(data: bytes | mmap.mmap, damaged: int, expected: int) -> int:
    """Where the next credible chunk begins, or the end of the file."""
    at = data.find(MAGIC, damaged + 1)
    while at >= 0:
        header = decode_header(data, at) if at % 8 == 0 else None
        if (
            header is not None
            and expected < header.base <= expected + (at - damaged) // SMALLEST_MESSAGE
            and at + header.file_bytes <= len(data)
            and _matches(data, at, header)
        ):
            return at
        at = data.find(MAGIC, at + 1)
    return len(data)
