"""A publisher's confirms: which messages the broker has said are safe.

The broker may confirm one by one, many at once, and not in order. Each message is confirmed once;
a confirm of what was not published, or a second one of the same message alone, is an error.
"""

from __future__ import annotations

import struct
from typing import Final

from benchmarks.broker import frames
from benchmarks.errors import WrongDelivery

_ACK: Final = struct.Struct(">BHIHHQBB")
_ROOM: Final = 1 << 16


class Confirms:
    """Reads the confirms' stream through the buffer it lends, like the checker of deliveries."""

    __slots__ = ("_above", "_all_below", "_buffer", "_used", "_view")

    def __init__(self) -> None:
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        self._used = 0
        self._all_below = 0  #: this tag and all below it are confirmed
        self._above: set[int] = set()

    @property
    def confirmed(self) -> int:
        return self._all_below + len(self._above)

    def room(self) -> memoryview:
        return self._view[self._used :]

    def took(self, octets: int, published: int) -> int:
        """Take in `octets`, when `published` messages have been; how many are confirmed now."""
        used = self._used + octets
        whole = used - used % _ACK.size
        for kind, _, size, *name, tag, multiple, end in _ACK.iter_unpack(self._view[:whole]):
            if (kind, size, *name, end) != (frames.METHOD, 13, *frames.BASIC_ACK, frames.FRAME_END):
                raise WrongDelivery(f"no confirm: {bytes(self._view[:used])[:200]!r}")
            if not 0 < tag <= published:
                raise WrongDelivery(f"message {tag} is confirmed, {published} were published")
            self._confirm(tag, multiple=bool(multiple))
        used -= whole
        self._buffer[:used] = self._buffer[whole : whole + used]
        self._used = used
        return self.confirmed

    def _confirm(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            if tag > self._all_below:
                self._all_below = tag
                self._above = {other for other in self._above if other > tag}
        elif tag <= self._all_below or tag in self._above:
            raise WrongDelivery(f"message {tag} is confirmed twice")
        else:
            self._above.add(tag)
        while self._all_below + 1 in self._above:
            self._all_below += 1
            self._above.remove(self._all_below)
