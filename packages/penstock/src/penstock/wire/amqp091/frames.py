"""Frames of AMQP 0-9-1, without I/O: constants, readers and the encoders of frequent methods.

`Amqp091FrameReader` is the broker's reader. `feed` takes the bytes of one socket read and calls an
`Amqp091FrameHandler` for each frame. A publish whose content has arrived with it takes a fast path:
three slices and no objects between; so do acknowledgements. Publishes in a row with the same
exchange and routing key are passed on together. Every other method is passed on as its
payload, for `methods.py` to decode. The reader guarantees that frames are complete, within the
negotiated size and correctly terminated. Their order is checked by the handler.

`FrameSplitter` is the reader of a blocking client. `content.py` has the reader of an asynchronous
client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import FrameError, UnexpectedFrame, WireSyntaxError
from penstock.wire.amqp091.methods import BASIC_ACK, BASIC_DELIVER, BASIC_PUBLISH

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: Type, channel and payload size; the payload and an end octet follow.
FRAME_HEADER_STRUCT: Final = Struct(">BHI")
FRAME_HEADER_BYTES: Final = FRAME_HEADER_STRUCT.size
#: The size of a frame beside its payload.
FRAME_OVERHEAD: Final = FRAME_HEADER_BYTES + 1
#: The smallest frame size that a peer may negotiate.
FRAME_MIN_SIZE: Final = 4096
#: The largest frame size that our clients negotiate.
FRAME_MAX: Final = 128 << 10

#: Publishes that are passed on together, unless the channel wants fewer.
MAX_RUN_PUBLISHES: Final = 192
#: Larger bodies are cheaper to cut out one by one than to copy twice.
MAX_ALIKE_BYTES: Final = 2048

#: The first bytes of the payload of a `basic.deliver`.
BASIC_DELIVER_PREFIX: Final = BASIC_DELIVER.to_bytes(4, "big")
_BASIC_PUBLISH_PREFIX: Final = BASIC_PUBLISH.to_bytes(4, "big") + b"\x00\x00"

_unpack_frame_header = FRAME_HEADER_STRUCT.unpack_from
_unpack_method_id = Struct(">I").unpack_from
_unpack_content_header = Struct(">BHIHHQ").unpack_from
_unpack_ack = Struct(">QB").unpack_from

_pack_frame_header = FRAME_HEADER_STRUCT.pack
_pack_end_and_frame_header = Struct(">BBHI").pack
_pack_tag = Struct(">QB").pack
_pack_ack = Struct(">BHIIQBB").pack


class AmqpFrame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class FrameSplitter:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[AmqpFrame]:
        """The frames that are complete now."""
        if self._rest:
            data = self._rest + data
        found: list[AmqpFrame] = []
        pos, end = 0, len(data)
        while end - pos >= FRAME_OVERHEAD:
            kind, channel, size = _unpack_frame_header(data, pos)
            stop = pos + 7 + size
            if kind > FRAME_HEARTBEAT or size > FRAME_MAX:
                raise invalid_frame(data, pos)
            if stop >= end:
                break
            if data[stop] != FRAME_END:
                raise invalid_frame(data, pos)
            found.append(AmqpFrame(kind, channel, data[pos + 7 : stop]))
            pos = stop + 1
        self._rest = data[pos:]
        return found

    def take(self) -> bytes:
        """Remove and return the bytes of an incomplete frame, so that another reader continues."""
        rest, self._rest = self._rest, b""
        return rest


def invalid_frame(data: bytes, pos: int) -> FrameError:
    if data.startswith(b"AMQP"):
        return FrameError("the server does not speak AMQP 0-9-1")
    return FrameError(
        "invalid frame: unknown type, too large or no frame-end octet: "
        f"{data[pos : pos + 8].hex(' ')} …"
    )


class FastPathChannel(Protocol):
    #: Whether a publish may take the fast path: the channel is open and between messages.
    is_idle: bool
    #: Whether the body of a large message is being received; its pieces are passed on at once.
    streaming_body: bool
    #: Publishes that may be passed on together.
    run_limit: int

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None: ...

    def publish_run(
        self, route: bytes, bits: int, headers: list[bytes], bodies: list[bytes]
    ) -> None:
        """One or more publishes in a row."""

    def ack(self, tag: int, multiple: bool) -> None: ...


class Amqp091FrameHandler(Protocol):
    def on_method(self, channel: int, payload: bytes) -> None: ...

    def on_header(self, channel: int, payload: bytes) -> None: ...

    def on_body(self, channel: int, payload: bytes | memoryview) -> None: ...

    def on_error(self, channel: int, method: int, error: Exception) -> None:
        """Called for an exception of the other methods; raises if reading cannot continue."""


class Amqp091FrameReader:
    __slots__ = ("_channels", "_left", "_number", "_sink", "_tail", "frame_max", "held")

    def __init__(
        self, sink: Amqp091FrameHandler, frame_max: int, channels: Mapping[int, FastPathChannel]
    ) -> None:
        self._sink = sink
        self._tail = b""
        self._left = 0  # bytes to come of a body frame passed on in pieces, with its end octet
        self._number = 0  # its channel
        self.frame_max = frame_max
        self._channels = channels
        #: While set, received bytes are buffered and not read.
        self.held = False

    @property
    def waiting(self) -> int:
        """The number of buffered bytes."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Read the frames that are complete now."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        pos = self._resume(data) if self._left else 0
        end = len(data)
        limit = (
            self.frame_max
        )  # of a payload: clients do not agree whether the frame's overhead counts
        channels = self._channels
        while end - pos >= FRAME_OVERHEAD - 1 and not self.held:
            kind, number, size = _unpack_frame_header(data, pos)
            if size > limit:
                raise FrameError(f"type {kind}, frame too large: {size} bytes, at most {limit}")
            after = pos + size + FRAME_OVERHEAD
            if after > end:
                if (
                    kind == FRAME_BODY
                    and (channel := channels.get(number))
                    and channel.streaming_body
                ):
                    pos = self._begin(number, data, pos + 7, after)
                break
            if data[after - 1] != FRAME_END:
                raise FrameError(f"type {kind}, invalid frame end marker {data[after - 1]:#x}")
            method = 0
            try:
                if kind == FRAME_METHOD and size >= 4:
                    method = _unpack_method_id(data, pos + 7)[0]
                    if method == BASIC_PUBLISH:
                        channel = channels.get(number)
                        if channel is not None and channel.is_idle and end - after >= 22:
                            # The fast path: header and body are here, in one frame each.
                            kind2, number2, size2, group, _, length = _unpack_content_header(
                                data, after
                            )
                            stop = after + size2 + FRAME_OVERHEAD
                            last = stop + length + FRAME_OVERHEAD if length else stop
                            if (
                                last <= end
                                and kind2 == FRAME_HEADER
                                and number2 == number
                                and group == 60
                                and size2 <= limit
                                and data[stop - 1] == FRAME_END
                                and (
                                    not length
                                    or (
                                        _unpack_frame_header(data, stop)
                                        == (FRAME_BODY, number, length)
                                        and length <= limit
                                        and data[last - 1] == FRAME_END
                                    )
                                )
                            ):
                                route, bits = data[pos + 13 : after - 2], data[after - 2]
                                header = data[after + 7 : stop - 1]
                                body = data[stop + 7 : last - 1] if length else b""
                                if not data.startswith(data[pos:after], last):
                                    pos = last
                                    channel.publish(route, bits, header, body)
                                    continue
                                headers, bodies = [header], [body]
                                most = channel.run_limit
                                pos = self._read_run(data, pos, after, last, most, headers, bodies)
                                channel.publish_run(route, bits, headers, bodies)
                                continue
                    elif method == BASIC_ACK and size == 13:
                        channel = channels.get(number)
                        if channel is not None and channel.is_idle:
                            tag, multiple = _unpack_ack(data, pos + 11)
                            pos = after
                            channel.ack(tag, multiple & 1 == 1)
                            continue
                payload = data[pos + 7 : after - 1]
                pos = after
                self._dispatch(kind, number, payload)
            except Exception as error:
                pos = max(pos, after)
                self._sink.on_error(number, method, error)
        if pos < end:
            self._tail = data[pos:] if pos else data

    def _read_run(
        self,
        data: bytes,
        start: int,
        after: int,
        pos: int,
        most: int,
        headers: list[bytes],
        bodies: list[bytes],
    ) -> int:
        """Read publishes from `pos` on with the same method frame as the one at `start`, which ends
        at `after`, as far as they are complete and valid; returns where they end.

        Publishes that differ only in their bodies are found by comparing what comes before.
        """
        end, limit = len(data), self.frame_max
        method = data[start:after]
        header, body = headers[0], bodies[0]
        prefix = data[start : pos - 1 - len(body)] if body else b""
        stride = pos - start
        while len(bodies) < most:
            if prefix and data.startswith(prefix, pos):
                alike = read_alike(data, pos, prefix, stride, most - len(bodies))
                if not alike:
                    break
                headers += repeat(header, len(alike))
                bodies += alike
                pos += stride * len(alike)
                continue
            after = pos + len(method)
            if end - after < 22 or not data.startswith(method, pos):
                break
            kind, number, size, group, _, length = _unpack_content_header(data, after)
            stop = after + size + FRAME_OVERHEAD
            last = stop + length + FRAME_OVERHEAD
            if (
                not length
                or last > end
                or length > limit
                or size > limit
                or kind != FRAME_HEADER
                or group != 60
                or data[after + 1 : after + 3] != method[1:3]
                or data[stop - 1] != FRAME_END
                or _unpack_frame_header(data, stop) != (FRAME_BODY, number, length)
                or data[last - 1] != FRAME_END
            ):
                break
            header = data[after + 7 : stop - 1]
            prefix, stride = data[pos : stop + 7], last - pos
            headers.append(header)
            bodies.append(data[stop + 7 : last - 1])
            pos = last
        return pos

    # The body of a large message is passed on in pieces, not collected into whole frames.

    def _begin(self, number: int, data: bytes, start: int, after: int) -> int:
        """Pass on the beginning of a body frame; returns the position after it."""
        self._number = number
        self._left = after - len(data)
        self._pass_body(data, start, min(len(data), after - 1))
        return len(data)

    def _resume(self, data: bytes) -> int:
        """Pass on more of a body frame; returns the position after it."""
        if self.held:
            return 0
        stop = min(self._left - 1, len(data))
        self._left -= stop
        self._pass_body(data, 0, stop)
        if self._left > 1 or stop == len(data) or self.held:
            return stop
        if data[stop] != FRAME_END:
            raise FrameError(f"type {FRAME_BODY}, invalid frame end marker {data[stop]:#x}")
        self._left = 0
        return stop + 1

    def _pass_body(self, data: bytes, start: int, stop: int) -> None:
        if start >= stop:
            return
        try:
            self._sink.on_body(self._number, memoryview(data)[start:stop])
        except Exception as error:
            self._sink.on_error(self._number, 0, error)

    def _dispatch(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD and len(payload) >= 4:
            self._sink.on_method(channel, payload)
        elif kind == FRAME_HEADER:
            self._sink.on_header(channel, payload)
        elif kind == FRAME_BODY:
            self._sink.on_body(channel, payload)
        elif kind != FRAME_HEARTBEAT or payload:
            raise FrameError(f"type {kind}, {len(payload)} octets: unknown frame")
        elif channel:
            raise UnexpectedFrame("heartbeat on a channel other than 0")


def read_alike(data: bytes, pos: int, prefix: bytes, stride: int, most: int) -> list[bytes]:
    """The bodies of the publishes from `pos` on that begin with `prefix` and have `stride` bytes,
    as far as they are complete and valid."""
    size = stride - len(prefix) - 1
    if size > MAX_ALIKE_BYTES:
        last = pos + stride
        is_whole = last <= len(data) and data[last - 1] == FRAME_END
        return [data[last - 1 - size : last - 1]] if is_whole else []
    found: list[bytes] = []
    between = b"\xce" + prefix
    window = 8  # what is split in vain is no more than what is used
    while most > 0:
        count = min(window, most, (len(data) - pos) // stride)
        if count <= 0:
            break
        stop = pos + stride * count - 1
        # A body may contain what stands between two others; then the sizes are not the same.
        bodies = data[pos + len(prefix) : stop].split(between)
        sizes = list(map(len, bodies))
        if len(bodies) == sizes.count(size) == count and data[stop] == FRAME_END:
            found += bodies
        else:
            valid = next((at for at, other in enumerate(sizes) if other != size), len(sizes) - 1)
            return found + bodies[:valid]
        pos = stop + 1
        most -= count
        window *= 4
        if not data.startswith(prefix, pos):
            break
    return found


class BasicDeliverWriter:
    """Appends `basic.deliver` and its content for one consumer to a list of byte strings."""

    __slots__ = ("_body_max", "_channel", "_frames", "_head", "_header", "_prefixes")

    def __init__(self, channel: int, consumer_tag: bytes, frame_max: int) -> None:
        self._channel = channel
        self._head = BASIC_DELIVER_PREFIX + bytes((len(consumer_tag),)) + consumer_tag
        self._body_max = frame_max - FRAME_OVERHEAD
        #: The start of the method frame, by the length of the route.
        self._prefixes: dict[int, bytes] = {}
        self._header = b""  #: the last one whose body had one frame, and what surrounds it
        self._frames = b""

    def write(
        self, out: list[bytes], tag: int, again: bool, route: bytes, header: bytes, body: bytes
    ) -> None:
        prefix = self._prefixes.get(len(route)) or self._prefix(len(route))
        number = self._channel
        size = len(body)
        if 0 < size <= self._body_max:
            frames = self._frames if header == self._header else self._surround(header, size)
            out += (prefix, _pack_tag(tag, again), route, frames, body, b"\xce")
        else:
            out += (
                prefix,
                _pack_tag(tag, again),
                route,
                _pack_end_and_frame_header(FRAME_END, FRAME_HEADER, number, len(header)),
                header,
                b"\xce",
            )
            write_body_frames(out, number, memoryview(body), self._body_max)

    def write_run(
        self,
        out: list[bytes],
        tag: int,
        route: bytes,
        headers: Sequence[bytes],
        bodies: Sequence[bytes],
    ) -> None:
        """The same for messages with one route, delivered for the first time, with tags from `tag`
        on. Messages that share a header have the same frames but for the tag and the body."""
        start, count = 0, len(bodies)
        are_alike = headers.count(headers[0]) == count
        while start < count:
            header = headers[start]
            stop = count if are_alike else start + 1
            while stop < count and headers[stop] is header:
                stop += 1
            size = len(bodies[start])
            if 0 < size <= self._body_max:
                self._write_alike(out, tag + start, route, header, bodies[start:stop])
            else:
                for body in bodies[start:stop]:
                    self.write(out, tag + start, False, route, header, body)
                    start += 1
            start = stop

    def _write_alike(
        self, out: list[bytes], tag: int, route: bytes, header: bytes, bodies: Sequence[bytes]
    ) -> None:
        """Bodies of one size, each of which fits into a frame."""
        prefix = self._prefixes.get(len(route)) or self._prefix(len(route))
        frames = route + self._surround(header, len(bodies[0]))
        leads = chain((prefix,), repeat(b"\xce" + prefix))
        tags = map(_pack_tag, range(tag, tag + len(bodies)), repeat(0))
        # One zip and one join: this is a third of what a delivery costs.
        out += chain.from_iterable(zip(leads, tags, repeat(frames), bodies, strict=False))
        out.append(b"\xce")

    def _surround(self, header: bytes, size: int) -> bytes:
        """What stands between the route and a body of this size, which the header says, too."""
        number, follow = self._channel, _pack_end_and_frame_header
        head = follow(FRAME_END, FRAME_HEADER, number, len(header))
        self._header = header
        self._frames = head + header + follow(FRAME_END, FRAME_BODY, number, size)
        return self._frames

    def _prefix(self, length: int) -> bytes:
        """For routes of this length."""
        size = len(self._head) + 9 + length
        prefix = _pack_frame_header(FRAME_METHOD, self._channel, size) + self._head
        self._prefixes[length] = prefix
        return prefix


def write_content_frames(
    out: list[bytes], channel: int, method: bytes, header: bytes, body: bytes, frame_max: int
) -> None:
    """Append a method frame (`basic.return`, `basic.get-ok`) and its content."""
    out += (method, _pack_frame_header(FRAME_HEADER, channel, len(header)), header, b"\xce")
    write_body_frames(out, channel, memoryview(body), frame_max - FRAME_OVERHEAD)


def write_body_frames(out: list[bytes], channel: int, body: memoryview, body_max: int) -> None:
    for at in range(0, len(body), body_max):
        piece = body[at : at + body_max]
        out += (_pack_frame_header(FRAME_BODY, channel, len(piece)), piece, b"\xce")  # type: ignore[arg-type]


def encode_basic_ack(channel: int, tag: int, multiple: bool = False) -> bytes:
    return _pack_ack(FRAME_METHOD, channel, 13, BASIC_ACK, tag, multiple, FRAME_END)


def encode_basic_publish(
    channel: int,
    route: bytes,
    header: bytes,
    body: bytes,
    frame_max: int,
    *,
    mandatory: bool = False,
) -> bytes:
    """All frames of a publish; `route` is the exchange and the routing key, two short strings."""
    most = frame_max - FRAME_OVERHEAD
    if len(header) > most:
        raise WireSyntaxError(
            f"properties of {len(header)} bytes do not fit into a frame of {frame_max} bytes"
        )
    size = len(body)
    follow = _pack_end_and_frame_header
    parts = [
        _pack_frame_header(FRAME_METHOD, channel, len(route) + 7),
        _BASIC_PUBLISH_PREFIX,
        route,
        b"\x01" if mandatory else b"\x00",
        follow(FRAME_END, FRAME_HEADER, channel, len(header)),
        header,
    ]
    if 0 < size <= most:
        parts += (follow(FRAME_END, FRAME_BODY, channel, size), body)
    else:
        for start in range(0, size, most):
            piece = body[start : start + most]
            parts += (follow(FRAME_END, FRAME_BODY, channel, len(piece)), piece)
    parts.append(b"\xce")
    return b"".join(parts)
