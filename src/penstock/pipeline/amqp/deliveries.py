"""Deliveries taken out of a stream of bytes, many at a time.

A reader of a stream does this for every message, so it is not done message by message. A consumer
is named by its reader, with a name that nobody guesses; where that name stands, deliveries begin.
What follows each is then measured for all of them together: the method, the content header, the
body in one frame. A run is taken if every delivery in it is whole and ends where the next begins:
so nothing is believed only because it looks like a delivery. All else, such as a body in several
frames or what is no delivery, is taken frame by frame. Bytes in, places out; the socket is the
reader's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.errors import UnexpectedFrame
from penstock.pipeline.amqp.octets import Octets, Places
from penstock.wire.amqp091.frames import BODY, END, HEADER, METHOD, PREFIX, Frame, not_framed

_DELIVER: Final = b"\x00\x3c\x00\x3c"
#: Before the payload of a frame, and behind it.
_HEAD: Final = 7
_FRAME: Final = 8
#: The shortest content header: class, weight, size of the body, flags.
_CONTENT: Final = 14
_NOWHERE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Delivered:
    """Messages in a block of bytes: where the parts of each lie, one behind the other."""

    octets: Octets
    routes: Places  #: the exchange's name and the routing key, two short strings
    headers: Places
    header_ends: Places
    bodies: Places
    body_ends: Places

    def __len__(self) -> int:
        return len(self.routes)


class Deliveries:
    """The deliveries to one consumer, which has a channel to itself."""

    __slots__ = (
        *("_channel", "_header", "_mark", "_missing", "_pieces", "_rest", "_route", "_tag"),
        "tag",
    )

    def __init__(self, channel: int, consumer: bytes, rest: bytes = b"") -> None:
        self.tag = 0  #: of the last whole message
        self._channel = channel
        self._mark = _DELIVER + bytes((len(consumer),)) + consumer
        self._rest = rest
        # Of the delivery that is taken frame by frame:
        self._tag = 0
        self._route: bytes | None = None
        self._header: bytes | None = None
        self._missing = 0  # bytes of the body that have not come yet
        self._pieces: list[bytes] = []

    def count(self, data: bytes) -> int:
        """How many deliveries begin in a piece of what is received, or a few more than that."""
        return data.count(self._mark)

    def feed(self, data: bytes) -> tuple[list[Delivered], list[Frame]]:
        """The messages that are whole now, and the frames that are no part of a delivery."""
        octets = Octets(self._rest + data)
        runs = _Runs(octets, self._mark, self._channel)
        found: list[Delivered] = []
        others: list[Frame] = []
        pos = 0
        while True:
            if self._route is None and (run := runs.at(pos)) is not None:
                delivered, pos, self.tag = run
                found.append(delivered)
            elif (frame := _frame(octets.data, pos)) is not None:
                pos += len(frame.payload) + _FRAME
                if (whole := self._take(frame, others)) is not None:
                    found.append(whole)
            else:
                self._rest = bytes(octets.data[pos:])
                return found, others

    def _take(self, frame: Frame, others: list[Frame]) -> Delivered | None:
        """Go on with one frame; the message, if that was its last."""
        kind, channel, payload = frame
        if channel != self._channel or (kind == METHOD and not payload.startswith(self._mark)):
            others.append(frame)
            return None
        if kind == METHOD and self._route is None:
            at = len(self._mark)
            self._tag = int.from_bytes(payload[at : at + 8], "big")
            self._route = payload[at + 9 :]
            return None
        if kind == HEADER and self._route is not None and self._header is None:
            self._header = payload
            self._missing = int.from_bytes(payload[4:12], "big")
        elif kind == BODY and self._header is not None and len(payload) <= self._missing:
            self._pieces.append(payload)
            self._missing -= len(payload)
        else:
            raise UnexpectedFrame(f"a frame of kind {kind} that belongs to no delivery")
        return None if self._missing else self._whole()

    def _whole(self) -> Delivered:
        assert self._route is not None
        assert self._header is not None
        parts = (self._route, self._header, *self._pieces)
        self.tag = self._tag
        self._route = self._header = None
        self._pieces = []
        header, body = len(parts[0]), len(parts[0]) + len(parts[1])
        octets = Octets(b"".join(parts))
        places = (0, header, body, body, octets.size)
        return Delivered(octets, *(np.array([place]) for place in places))


class _Runs:
    """The deliveries of a block that follow one another without anything in between."""

    __slots__ = ("_breaks", "_ends", "_mark", "_octets", "_parts", "_starts", "_whole")

    def __init__(self, octets: Octets, mark: bytes, channel: int) -> None:
        self._octets = octets
        self._mark = len(mark)
        self._starts = octets.find(mark) - _HEAD
        if octets.size < _FRAME:
            self._starts = _NOWHERE
        self._whole, self._ends, self._parts = self._measure(self._starts, channel)
        follows = self._whole[1:] & (self._ends[:-1] == self._starts[1:])
        self._breaks = np.append(np.flatnonzero(~follows), len(self._starts) - 1)

    def at(self, pos: int) -> tuple[Delivered, int, int] | None:
        """The run that begins there, where it ends, and the tag of its last delivery."""
        first = int(np.searchsorted(self._starts, pos))
        if first == len(self._starts) or self._starts[first] != pos or not self._whole[first]:
            return None
        last = int(self._breaks[np.searchsorted(self._breaks, first)])
        parts = (each[first : last + 1] for each in self._parts)
        tag = self._octets.i64[self._starts[last] + _HEAD + self._mark]
        return Delivered(self._octets, *parts), int(self._ends[last]), int(tag)

    def _measure(
        self, starts: Places, channel: int
    ) -> tuple[NDArray[np.bool_], Places, tuple[Places, ...]]:
        """Which are whole, with a body in one frame at most; where they end; where their parts lie.

        Of those that are not, the places mean nothing.
        """
        octets = self._octets
        u8, u32 = octets.u8, octets.u32
        whole = starts >= 0

        def frames(at: Places, kind: int, least: int) -> tuple[Places, Places]:
            """The end of a payload, and of its frame, for those that are as they should be."""
            nonlocal whole
            whole = whole & (at + _FRAME + least <= octets.size)
            at = np.where(whole, at, 0)
            whole = whole & (u8[at] == kind) & (octets.u16[at + 1] == channel)
            stop = at + _HEAD + u32[at + 3]
            whole = whole & (stop - at - _HEAD >= least) & (stop < octets.size)
            stop = np.where(whole, stop, 0)
            whole = whole & (u8[stop] == END)
            return stop, stop + 1

        method_end, header = frames(starts, METHOD, self._mark + 11)
        route = starts + _HEAD + self._mark + 9
        key = np.where(whole, route + 1 + u8[np.where(whole, route, 0)], 0)
        whole = whole & (key < method_end)
        whole = whole & (key + 1 + u8[np.where(whole, key, 0)] == method_end)
        header_end, body = frames(header, HEADER, _CONTENT)
        size = octets.i64[np.where(whole, header + _HEAD + 4, 0)]
        # A message without a body ends here; those with one have all of it in the next frame.
        empty = whole & (size == 0)
        whole = whole & ~empty
        body_end, end = frames(body, BODY, 1)
        whole = whole & (body_end - body - _HEAD == size)
        whole |= empty
        body_end = np.where(empty, body, body_end)
        parts = (route, header + _HEAD, header_end, body + _HEAD * ~empty, body_end)
        return whole, np.where(empty, body, end), parts


def _frame(data: bytes | bytearray, pos: int) -> Frame | None:
    """The frame at that place, once it is whole."""
    if len(data) - pos < _FRAME:
        return None
    kind, channel, size = PREFIX.unpack_from(data, pos)
    stop = pos + _HEAD + size
    if stop >= len(data):
        return None
    if data[stop] != END:
        raise not_framed(bytes(data), pos)
    return Frame(kind, channel, bytes(data[pos + _HEAD : stop]))
