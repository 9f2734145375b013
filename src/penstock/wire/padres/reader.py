"""A stream of bytes as frames: first the eight bytes both sides begin with, then an `Open`, or the
`Close` of a broker that does not let one in.

What comes in pieces waits until it is whole; no more of it than the largest frame there may be.
Whoever begins otherwise, or speaks another version, is named in a `FrameError`.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import ContentTooLarge, FrameError
from penstock.wire.padres.codec import decode
from penstock.wire.padres.frames import PREFACE, STRANGER, VERSION, Close, Frame, Open

_NAME: Final = PREFACE[:-1]


class Reader:
    __slots__ = ("_begun", "_opened", "_pending", "largest", "stopped")

    def __init__(self, largest: int = STRANGER) -> None:
        self.largest = largest  #: frame that is taken
        self.stopped = False  #: what was read is not looked at further, and waits
        self._pending = bytearray()
        self._begun = False
        self._opened = False

    @classmethod
    def after_open(cls, largest: int) -> Reader:
        """For somebody who has been heard to say who it is."""
        reader = cls(largest)
        reader._begun = reader._opened = True
        return reader

    @property
    def rest(self) -> bytes:
        """What is not whole yet, or was not looked at."""
        return bytes(self._pending)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that have become whole."""
        return list(self.frames(data))

    def frames(self, data: bytes) -> _Frames:
        """The same one by one: whoever takes them may stop the reader in between."""
        self._pending += data
        return _Frames(self)

    def next(self) -> Frame | None:
        pending = self._pending
        if self.stopped or not (self._begun or self._begin()) or len(pending) < 4:
            return None
        size = int.from_bytes(pending[:4], "big")
        if size > self.largest:
            raise ContentTooLarge(f"a frame of {size} bytes, {self.largest} may be")
        if len(pending) < 4 + size:
            return None
        content = bytes(memoryview(pending)[4 : 4 + size])
        del pending[: 4 + size]
        frame = decode(content)
        if isinstance(frame, Open) is self._opened and not isinstance(frame, Close):
            raise FrameError("who one is has to be said first, and once")
        self._opened = True
        return frame

    def _begin(self) -> bool:
        pending = self._pending
        if not _NAME.startswith(bytes(pending[: len(_NAME)])):
            raise FrameError(f"this is no PADRES: it begins with {bytes(pending[:8])!r}")
        if len(pending) < len(PREFACE):
            return False
        if pending[len(_NAME)] != VERSION:
            raise FrameError(f"PADRES version {pending[len(_NAME)]}, and {VERSION} is spoken here")
        del pending[: len(PREFACE)]
        self._begun = True
        return True


class _Frames:
    """What a reader holds, frame by frame."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __iter__(self) -> _Frames:
        return self

    def __next__(self) -> Frame:
        frame = self._reader.next()
        if frame is None:
            raise StopIteration
        return frame
