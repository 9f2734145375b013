"""The frames of RFC 6455 as a server sees them: bytes in, payload out, no I/O.

What binary frames carry is one stream of bytes (an MQTT packet may begin and end anywhere in
them), so a payload is handed on as it comes: nothing is kept of a frame but its head, however long
it says it is, and all the frames of one read make one piece. Of pings only the last is worth an
answer. Text, and whatever breaks the rules, ends the stream; so does a close frame.

This stands in for the frame parser of the `websockets` library, which gathers each frame whole
before it lets go of it and takes seven times as long for a short one; the tests hold the two
against each other. Unmasking is the library's, in C.
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
#: Lengths that say how many octets hold the length; a control frame may have none of them.
_IN_TWO: Final = 126
_IN_EIGHT: Final = 127

_WHOLE_BINARY: Final = _FIN | Opcode.BINARY.value
_MASKED_LONG: Final = _MASKED | _IN_TWO
#: The head of a short frame, mask included.
_HEAD: Final = 6
_KNOWN: Final = frozenset(opcode.value for opcode in Opcode)


@dataclass(frozen=True, slots=True)
class WebSocketClose:
    """Why no more payload comes: the client closes, or has broken the rules."""

    code: int
    reason: str
    theirs: bool  #: it is what their close frame says


class WebSocketFrameReader:
    __slots__ = ("_fragmented", "_left", "_mask", "_max_bytes", "_rest", "end", "ping")

    def __init__(self, max_bytes: int) -> None:
        """A frame that announces more than `max_bytes` is refused."""
        self._max_bytes = max_bytes
        self._rest = b""  # the beginning of a head or of a control frame
        self._left = 0  # of the payload under way
        self._mask = b""  # as its next octet needs it
        self._fragmented = False  # the message goes on in another frame
        self.ping: bytes | None = None  #: the last one; whoever answers it sets it back
        self.end: WebSocketClose | None = None  #: once it is set, nothing further is read

    def feed(self, data: bytes) -> bytes:
        """The payload in it."""
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
            ):  # a short frame that is all here: what most packets come in
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
        """Read any frame; where the next one begins, or `at` when too little is here of this."""
        first, second = data[at], data[at + 1]
        if first != _WHOLE_BINARY or second < _MASKED or self._fragmented:
            self.end = self._objection(first, second)
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
                f"a frame of {length} bytes, over the limit of {self._max_bytes}",
                theirs=False,
            )
            return at
        self._fragmented = not first & _FIN
        self._mask, self._left = mask, length
        return self._take(data, start, payload)

    def _take(self, data: bytes, at: int, payload: list[bytes]) -> int:
        """As much as is here of the payload under way."""
        part = memoryview(data)[at : at + self._left]
        payload.append(apply_mask(cast(bytes, part), self._mask))
        self._left -= len(part)
        if self._left:
            turned = len(part) % 4
            self._mask = self._mask[turned:] + self._mask[:turned]
        return at + len(part)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == Opcode.PING:
            self.ping = payload
        elif opcode == Opcode.CLOSE:
            try:
                close = Close.parse(payload)
            except ProtocolError as error:
                self.end = WebSocketClose(CloseCode.PROTOCOL_ERROR, str(error), theirs=False)
            except UnicodeDecodeError:
                self.end = WebSocketClose(
                    CloseCode.INVALID_DATA, "the reason is not UTF-8", theirs=False
                )
            else:
                self.end = WebSocketClose(close.code, close.reason, theirs=True)

    def _objection(self, first: int, second: int) -> WebSocketClose | None:
        opcode = first & _OPCODE
        code, reason = CloseCode.PROTOCOL_ERROR, ""
        if first & _RESERVED:
            reason = "reserved bits must be 0"
        elif opcode not in _KNOWN:
            reason = f"opcode {opcode} is not known"
        elif not second & _MASKED:
            reason = "a client masks its frames"
        elif opcode >= Opcode.CLOSE:
            if not first & _FIN or second & _LENGTH >= _IN_TWO:
                reason = "a control frame is whole and has at most 125 bytes"
        elif opcode == Opcode.TEXT:
            code, reason = CloseCode.UNSUPPORTED_DATA, "only binary frames are taken"
        elif self._fragmented != (opcode == Opcode.CONT):
            reason = "a continuation has to follow its beginning, and nothing else may"
        return WebSocketClose(code, reason, theirs=False) if reason else None


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
    """A close frame; the code that stands for having been told none gives an empty one."""
    payload = b"" if code == CloseCode.NO_STATUS_RCVD else Close(code, reason).serialize()
    return bytes((_FIN | Opcode.CLOSE, len(payload))) + payload


# A WebSocket's opening handshake: an HTTP request in, the response to it out. No I/O.
#
# The request is gathered up to a bound and then judged by the `websockets` library: a GET for a
# path we have, an upgrade, a subprotocol we speak. Compression is not agreed to. A browser connects
# for the page of any site: which names and sites are answered is for a `HostPolicy` to say.

#: A request with its headers; the library has its own limits for a line and their number.
MAX_HANDSHAKE_BYTES: Final = 16 * 1024

_METHOD: Final = b"GET "
_END: Final = b"\r\n\r\n"
#: What counts in a request is ASCII; the library stumbles where it quotes anything else.
_ASCII: Final = bytes(range(128)) + b"?" * 128


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """What to answer; with a subprotocol the WebSocket is open, without one it is refused."""

    response: bytes
    subprotocol: str | None = None
    rest: bytes = b""  #: what came after the request


class WebSocketHandshake:
    __slots__ = ("_head", "_paths", "_policy", "_subprotocols")

    def __init__(
        self, subprotocols: Sequence[str], paths: Collection[str], policy: HostPolicy
    ) -> None:
        """The first subprotocol that a client offers as well is the one it gets."""
        self._policy = policy
        self._subprotocols = subprotocols
        self._paths = paths
        self._head = bytearray()

    def feed(self, data: bytes) -> HandshakeResult | None:
        """The verdict, once the request is whole or cannot become one."""
        head = self._head
        head += data
        if not head.startswith(_METHOD[: len(head)]):
            return self._refused(HTTPStatus.BAD_REQUEST, "Only a WebSocket client is answered here")
        end = head.find(_END, 0, MAX_HANDSHAKE_BYTES)
        if end >= 0:
            end += len(_END)
            return self._judged(bytes(head[:end]), bytes(head[end:]))
        if len(head) < MAX_HANDSHAKE_BYTES:
            return None
        return self._refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"A request here has less than {MAX_HANDSHAKE_BYTES} bytes",
        )

    def _judged(self, head: bytes, rest: bytes) -> HandshakeResult:
        library = self._library()
        library.receive_data(head.translate(_ASCII))
        match library.events_received():
            case [Request() as request]:
                pass
            case _:  # the library would hang up without a word
                return self._refused(HTTPStatus.BAD_REQUEST, "This is no HTTP/1.1 request")
        if request.path.partition("?")[0] not in self._paths:
            known = ", ".join(sorted(self._paths))
            return self._refused(HTTPStatus.NOT_FOUND, f"There is no such path; there is {known}")
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
