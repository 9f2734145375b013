"""The server side of WebSocket (RFC 6455) without I/O: opening handshake and frames.

The payload of binary frames is one stream of bytes: an MQTT packet may begin and end anywhere in
it. Payload is passed on as it arrives, and nothing of a frame is buffered but its head. Only the
last ping is answered. Text, a violation of the protocol and a close frame end the stream.

The handshake and unmasking (in C) are those of `websockets`. Its frame parser is not used: it
buffers whole frames, and parses 0.34 million frames of 60 bytes per CPU second, this one 2.9
million. The tests compare the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.core.errors import AccessRefused
from penstock.core.host_policy import HostPolicy

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform the library has no wheel for
    from websockets.utils import apply_mask

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
#: Lengths that stand for an extended length in the next octets; not in control frames.
_IN_TWO: Final = 126
_IN_EIGHT: Final = 127

_WHOLE_BINARY: Final = _FIN | Opcode.BINARY.value
_MASKED_LONG: Final = _MASKED | _IN_TWO
#: The head of a short frame, mask included.
_HEAD: Final = 6
_KNOWN: Final = frozenset(opcode.value for opcode in Opcode)


@dataclass(frozen=True, slots=True)
class WebSocketClose:
    """The end of the stream: a close frame of the client, or a violation of the protocol."""

    code: int
    reason: str
    by_client: bool  #: code and reason are from a close frame


class WebSocketFrameReader:
    __slots__ = ("_fragmented", "_left", "_mask", "_max_bytes", "_rest", "end", "ping")

    def __init__(self, max_bytes: int) -> None:
        """Frames with a larger payload are refused."""
        self._max_bytes = max_bytes
        self._rest = b""  # an incomplete head or control frame
        self._left = 0  # bytes of the current payload
        self._mask = b""  # rotated for the next octet
        self._fragmented = False  # the message continues in another frame
        self.ping: bytes | None = None  #: the last one; reset by the caller
        self.end: WebSocketClose | None = None  #: later input is ignored

    def feed(self, data: bytes) -> bytes:
        """The payload in the data."""
        if self.end is not None:
            return b""
        if self._rest:
            data = self._rest + data
        payload: list[bytes] = []
        at = self._take(data, 0, payload) if self._left else 0
        size = len(data)
        while size - at >= 2:
            second = data[at + 1]
            start = at + _HEAD
            stop = start + second - _MASKED
            if (
                data[at] == _WHOLE_BINARY
                and _MASKED <= second < _MASKED_LONG
                and stop <= size
                and not self._fragmented
            ):  # the fast path: a short, complete frame
                payload.append(apply_mask(data[start:stop], data[at + 2 : start]))
                at = stop
                continue
            after = self._frame(data, at, payload)
            if after == at or self.end is not None:
                break
            at = after
        self._rest = data[at:]
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _frame(self, data: bytes, at: int, payload: list[bytes]) -> int:
        """Read any frame; returns its end, or `at` if it is incomplete."""
        first, second = data[at], data[at + 1]
        if first != _WHOLE_BINARY or second < _MASKED or self._fragmented:
            self.end = self._violation(first, second)
            if self.end is not None:
                return at
        length = second & _LENGTH
        start = at + _HEAD
        if length >= _IN_TWO:
            start += 2 if length == _IN_TWO else 8
            length = int.from_bytes(data[at + 2 : start - 4], "big")
        if len(data) < start:
            return at
        mask = data[start - 4 : start]
        if first & _OPCODE >= Opcode.CLOSE:
            stop = start + length
            if len(data) < stop:
                return at
            self._control(first & _OPCODE, apply_mask(data[start:stop], mask))
            return stop
        if length > self._max_bytes:
            self.end = WebSocketClose(
                CloseCode.MESSAGE_TOO_BIG,
                f"the frame has {length} bytes, the limit is {self._max_bytes}",
                by_client=False,
            )
            return at
        self._fragmented = not first & _FIN
        self._mask, self._left = mask, length
        return self._take(data, start, payload)

    def _take(self, data: bytes, at: int, payload: list[bytes]) -> int:
        """The available part of the current payload; returns its end."""
        part = memoryview(data)[at : at + self._left]
        payload.append(apply_mask(cast(bytes, part), self._mask))
        self._left -= len(part)
        if self._left:
            shift = len(part) % 4
            self._mask = self._mask[shift:] + self._mask[:shift]
        return at + len(part)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == Opcode.PING:
            self.ping = payload
        elif opcode == Opcode.CLOSE:
            try:
                close = Close.parse(payload)
            except ProtocolError as error:
                self.end = WebSocketClose(CloseCode.PROTOCOL_ERROR, str(error), by_client=False)
            except UnicodeDecodeError:
                self.end = WebSocketClose(
                    CloseCode.INVALID_DATA, "the reason is not UTF-8", by_client=False
                )
            else:
                self.end = WebSocketClose(close.code, close.reason, by_client=True)

    def _violation(self, first: int, second: int) -> WebSocketClose | None:
        opcode = first & _OPCODE
        code, reason = CloseCode.PROTOCOL_ERROR, ""
        if first & _RESERVED:
            reason = "reserved bits must be 0"
        elif opcode not in _KNOWN:
            reason = f"unknown opcode {opcode}"
        elif not second & _MASKED:
            reason = "frames of a client must be masked"
        elif opcode >= Opcode.CLOSE:
            if not first & _FIN or second & _LENGTH >= _IN_TWO:
                reason = "a control frame must not be fragmented or longer than 125 bytes"
        elif opcode == Opcode.TEXT:
            code, reason = CloseCode.UNSUPPORTED_DATA, "only binary frames are supported"
        elif self._fragmented != (opcode == Opcode.CONT):
            reason = "unexpected continuation, or missing one"
        return WebSocketClose(code, reason, by_client=False) if reason else None


def binary_frame(payload: bytes | bytearray | memoryview) -> bytes:
    length = len(payload)
    if length < _IN_TWO:
        head = bytes((_WHOLE_BINARY, length))
    elif length < 1 << 16:
        head = bytes((_WHOLE_BINARY, _IN_TWO)) + length.to_bytes(2, "big")
    else:
        head = bytes((_WHOLE_BINARY, _IN_EIGHT)) + length.to_bytes(8, "big")
    return b"".join((head, payload))


def pong_frame(payload: bytes) -> bytes:
    return bytes((_FIN | Opcode.PONG, len(payload))) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Empty for the code of a close frame without a status."""
    payload = b"" if code == CloseCode.NO_STATUS_RCVD else Close(code, reason).serialize()
    return bytes((_FIN | Opcode.CLOSE, len(payload))) + payload


#: A request with its headers; the library limits their number and size.
MAX_HANDSHAKE_BYTES: Final = 16 * 1024

_METHOD: Final = b"GET "
_END: Final = b"\r\n\r\n"
#: The library fails to quote other characters in errors.
_ASCII: Final = bytes(range(128)) + b"?" * 128


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The response; without a subprotocol the handshake was refused."""

    response: bytes
    subprotocol: str | None = None
    rest: bytes = b""  #: data after the request


class WebSocketHandshake:
    """Collects the request up to a limit; `websockets` validates it. Browsers send requests for the
    pages of any site, so the `HostPolicy` decides which hosts and origins are accepted."""

    __slots__ = ("_head", "_paths", "_policy", "_subprotocols")

    def __init__(
        self, subprotocols: Sequence[str], paths: Collection[str], policy: HostPolicy
    ) -> None:
        """The first of the subprotocols that the client offers is selected."""
        self._policy = policy
        self._subprotocols = subprotocols
        self._paths = paths
        self._head = bytearray()

    def feed(self, data: bytes) -> HandshakeResult | None:
        """The result, or None if the request is incomplete."""
        head = self._head
        head += data
        if not head.startswith(_METHOD[: len(head)]):
            return self._refused(HTTPStatus.BAD_REQUEST, "A WebSocket request is expected")
        end = head.find(_END, 0, MAX_HANDSHAKE_BYTES)
        if end >= 0:
            end += len(_END)
            return self._respond(bytes(head[:end]), bytes(head[end:]))
        if len(head) < MAX_HANDSHAKE_BYTES:
            return None
        return self._refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request is larger than {MAX_HANDSHAKE_BYTES} bytes",
        )

    def _respond(self, head: bytes, rest: bytes) -> HandshakeResult:
        library = self._library()
        library.receive_data(head.translate(_ASCII))
        match library.events_received():
            case [Request() as request]:
                pass
            case _:  # the library would close without a response
                return self._refused(HTTPStatus.BAD_REQUEST, "Invalid HTTP/1.1 request")
        if request.path.partition("?")[0] not in self._paths:
            known = ", ".join(sorted(self._paths))
            return self._refused(HTTPStatus.NOT_FOUND, f"Unknown path; use {known}")
        try:
            self._check(request)
        except AccessRefused as error:
            return self._refused(HTTPStatus.FORBIDDEN, str(error))
        response = library.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return HandshakeResult(response.serialize())
        return HandshakeResult(response.serialize(), library.subprotocol, rest)

    def _check(self, request: Request) -> None:
        hosts = request.headers.get_all("Host")
        for host in hosts:
            self._policy.check_host(host)
        for origin in request.headers.get_all("Origin"):
            self._policy.check_origin(origin, hosts[0] if hosts else None)

    def _refused(self, status: HTTPStatus, reason: str) -> HandshakeResult:
        return HandshakeResult(self._library().reject(status, f"{reason}.\n").serialize())

    def _library(self) -> ServerProtocol:
        return ServerProtocol(subprotocols=[Subprotocol(name) for name in self._subprotocols])
