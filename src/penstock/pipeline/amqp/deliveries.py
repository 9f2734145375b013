"""Deliveries taken out of a stream of bytes, many at a time.

A reader of a stream does this for every message, so it is written for that: a loop over frames
that slices out the route, the content header and the body, and looks into none of them. What else
comes on the connection is handed over as frames. Bytes in, values out; the socket is the reader's.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import UnexpectedFrame
from penstock.pipeline.amqp.frames import BODY, END, HEADER, PREFIX, Frame, not_framed

_DELIVER: Final = b"\x00\x3c\x00\x3c"


class Deliveries:
    """The deliveries on one channel, as columns; whoever reads takes them and clears."""

    __slots__ = ("_channel", "_missing", "_pieces", "_rest", "bodies", "headers", "routes", "tag")

    def __init__(self, channel: int, rest: bytes = b"") -> None:
        self.routes: list[bytes] = []  #: exchange and routing key, two short strings
        self.headers: list[bytes] = []
        self.bodies: list[bytes] = []
        self.tag = 0  #: of the last whole message
        self._channel = channel
        self._rest = rest
        self._missing = 0  # bytes of the body that have not come yet
        self._pieces: list[bytes] = []

    def __len__(self) -> int:
        return len(self.bodies)

    def clear(self) -> None:
        """Forget what has been taken: the whole messages, not the one under way."""
        count = len(self.bodies)
        del self.routes[:count], self.headers[:count], self.bodies[:count]

    def feed(self, data: bytes) -> list[Frame]:
        """Take in what was received; returns the frames that are no part of a delivery."""
        if self._rest:
            data = self._rest + data
        others: list[Frame] = []
        unpack, channel_wanted = PREFIX.unpack_from, self._channel
        pos, end = 0, len(data)
        while end - pos > 7:
            kind, channel, size = unpack(data, pos)
            start = pos + 7
            stop = start + size
            if stop >= end:
                break
            if data[stop] != END:
                raise not_framed(data, pos)
            pos = stop + 1
            if channel != channel_wanted:
                others.append(Frame(kind, channel, data[start:stop]))
            elif kind == BODY:
                self._body(data, start, stop)
            elif kind == HEADER:
                header = data[start:stop]
                self.headers.append(header)
                self._missing = int.from_bytes(header[4:12], "big")
                if not self._missing:
                    self._whole(b"")
            elif data.startswith(_DELIVER, start):
                tag_at = start + 5 + data[start + 4]  # behind the consumer's name
                self.routes.append(data[tag_at + 9 : stop])
                self.tag = int.from_bytes(data[tag_at : tag_at + 8], "big")
            else:
                others.append(Frame(kind, channel, data[start:stop]))
        self._rest = data[pos:]
        return others

    def _body(self, data: bytes, start: int, stop: int) -> None:
        size = stop - start
        if size == self._missing and not self._pieces:  # most messages are one frame
            self._missing = 0
            self._whole(data[start:stop])
            return
        if size > self._missing:
            raise UnexpectedFrame(f"{size} bytes of a body of which {self._missing} were missing")
        self._pieces.append(data[start:stop])
        self._missing -= size
        if not self._missing:
            body = b"".join(self._pieces)
            self._pieces = []
            self._whole(body)

    def _whole(self, body: bytes) -> None:
        self.bodies.append(body)
        if not len(self.bodies) == len(self.headers) == len(self.routes):
            raise UnexpectedFrame("a content that belongs to no delivery")
