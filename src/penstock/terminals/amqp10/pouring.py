"""The body of a large message as it comes, piece by piece: sections in, contents out.

`DataSections` takes data out of its sections, however many there are; `KeptSections` hands on the
sections of any other body as they are. Neither holds more than the few bytes that a section begins
with, and a footer, which must be small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.conditions import DECODE_ERROR, MESSAGE_TOO_LARGE, LinkFault
from penstock.wire.amqp10.errors import Truncated
from penstock.wire.amqp10.sections import DATA, FOOTER, section_at

#: The most a large message may say after its body.
FOOTER_MAX: Final = 64 * 1024


class DataSections:
    __slots__ = ("_footer", "_left", "_start")

    def __init__(self) -> None:
        self._left = 0  #: of the section we are in
        self._start = b""  #: the beginning of one that is not all there
        self._footer = False  #: what has begun is the footer

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        """The contents in the next piece of the message."""
        while piece:
            if not self._left:
                piece = self._begin(piece)
                continue
            content = piece[: self._left]
            self._left -= len(content)
            piece = piece[len(content) :]
            yield content

    def _begin(self, piece: memoryview) -> memoryview:
        """The start of a section; returns what is behind it."""
        start = self._start + piece[: FOOTER_MAX + 1].tobytes()
        if self._footer:
            self._start = start
            if len(start) > FOOTER_MAX:
                raise LinkFault(MESSAGE_TOO_LARGE, "too much is said of a message after its body")
            return piece[:0]
        before = len(self._start)
        try:
            code, at = section_at(start, 0, len(start))
            if code == FOOTER:
                self._footer = True
                return self._begin(piece)
            if code != DATA:
                raise LinkFault(DECODE_ERROR, "sections of different kinds in one body")
            width = 1 if start[at] == 0xA0 else 4
            size = start[at + 1 : at + 1 + width]
            if len(size) < width:
                raise Truncated("a section ends within its size")
        except Truncated:
            self._start = start
            return piece[:0]
        self._start = b""
        self._left = int.from_bytes(size, "big")
        return piece[at + 1 + width - before :]

    def finish(self) -> bytes | None:
        """The message has ended; returns its footer."""
        if self._left or (self._start and not self._footer):
            raise LinkFault(DECODE_ERROR, "a message that ends within a section")
        if not self._footer:
            return None
        _, at = section_at(self._start, 0, len(self._start))
        decode_whole(self._start[at:])
        return self._start[at:]


class KeptSections:
    __slots__ = ()

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        yield piece

    def finish(self) -> bytes | None:
        return None
