"""HTTP/1.1 with h11: requests, responses, connections, and the mapping of errors to statuses.

Requests on a connection are answered in order. A request is dispatched when its headers have
arrived; its body is read when the handler asks for it, up to the handler's limit, so that an
unauthenticated client takes little memory. Reading pauses while a response is written, writing
while the socket is full. Idle connections and incomplete requests time out. Statuses and error
codes are RabbitMQ's: 401 also for a user without the permission, 400 for errors that would close a
channel in AMQP.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import h11

from penstock.core import errors
from penstock.core.errors import ContentTooLarge
from penstock.core.field_table import is_decimal
from penstock.core.logs import get_logger

JSON_HEADERS: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str  #: percent-encoded, without the query
    query: Mapping[str, str]
    headers: Mapping[str, str]  #: by lower-case name
    peer: str  #: the client's address
    read: Callable[[int], Awaitable[bytes]]  #: the body, up to a limit
    transport: asyncio.BaseTransport | None = None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int = 200
    body: bytes | AsyncIterator[bytes | memoryview] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


NO_CONTENT: Final = HttpResponse(204)
CREATED: Final = HttpResponse(201)


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, encode_json(value), JSON_HEADERS)


def encode_json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    """Types of field tables that JSON does not have, as RabbitMQ shows them."""
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return int(value.timestamp())
        case set() | frozenset() | tuple():
            return list(value)
    return float(value) if is_decimal(value) else str(value)


_log = get_logger("penstock.management")

RequestHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]

#: The timeout of an idle connection, and of sending a request.
IDLE_SECONDS: Final = 60.0
#: The timeout of the first request.
FIRST_REQUEST_SECONDS: Final = 10.0
MAX_HEADER_BYTES: Final = 32 * 1024
#: Bytes of a body that are read before the handler asks for it.
MAX_PIPELINED_BYTES: Final = 64 * 1024
#: Long responses are written in pieces of this size.
WRITE_HIGH_WATER: Final = 256 * 1024


class HttpConnection(asyncio.Protocol):
    __slots__ = (
        "_answer",
        "_body",
        "_body_bytes",
        "_complete",
        "_drained",
        "_h11",
        "_limit",
        "_loop",
        "_open",
        "_peer",
        "_task",
        "_timer",
        "_tls",
        "_transport",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: set[HttpConnection],
        answer: RequestHandler,
    ) -> None:
        self._loop = loop
        self._open = connections
        self._answer = answer
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._transport: asyncio.Transport
        self._peer = ""
        self._tls = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._limit = 0  # of the body, set by the handler
        self._complete: asyncio.Future[None] = loop.create_future()
        self._drained = asyncio.Event()
        self._drained.set()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if peer else ""
        self._tls = transport.get_extra_info("ssl_object") is not None
        self._open.add(self)
        self._wait(FIRST_REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._stop_waiting()
        self._drained.set()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._h11.receive_data(data)
        self._proceed()

    def eof_received(self) -> bool:
        self._h11.receive_data(b"")
        self._proceed()
        # A response in progress is still sent, but TLS cannot be half-closed.
        return self._task is not None and not self._tls

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The response in progress."""
        return self._task

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _wait(self, seconds: float = IDLE_SECONDS) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Requests.

    def _proceed(self) -> None:
        """Handle events of h11 until it needs data or the response."""
        while self._body_bytes <= max(self._limit, MAX_PIPELINED_BYTES):
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            match event:
                case h11.Request():
                    self._begin(event)
                case h11.Data():
                    self._body.append(bytes(event.data))
                    self._body_bytes += len(event.data)
                case h11.EndOfMessage():
                    self._transport.pause_reading()
                    if not self._complete.done():
                        self._complete.set_result(None)
                case h11.ConnectionClosed():
                    if self._task is None:
                        self._transport.close()
                    return
                case _:  # NEED_DATA, or PAUSED until the response was sent
                    return
        self._transport.pause_reading()
        if self._limit and not self._complete.done():
            self._complete.set_exception(
                ContentTooLarge(f"the body is larger than {self._limit} bytes")
            )

    def _begin(self, event: h11.Request) -> None:
        path, _, query = event.target.decode("ascii", "replace").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        request = HttpRequest(
            event.method.decode("ascii"),
            path,
            dict(parse_qsl(query, keep_blank_values=True)),
            headers,
            self._peer,
            self._read,
            self._transport,
        )
        self._body, self._body_bytes, self._limit = [], 0, 0
        self._complete = self._loop.create_future()
        self._task = self._loop.create_task(self._serve(request))

    async def _read(self, limit: int) -> bytes:
        self._limit = limit
        if self._h11.they_are_waiting_for_100_continue:
            proceed = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._transport.write(self._h11.send(proceed) or b"")
        if not self._complete.done():
            self._transport.resume_reading()
            self._proceed()
        await self._complete
        if self._body_bytes > limit:
            raise ContentTooLarge(f"the body is larger than {limit} bytes")
        return b"".join(self._body)

    # Responses.

    async def _serve(self, request: HttpRequest) -> None:
        # The timeout includes the body.
        self._complete.add_done_callback(lambda _: self._stop_waiting())
        try:
            response = await self._answer(request)
            self._stop_waiting()
            await self._write(response, request.method == "HEAD")
        except BaseException as error:
            self._task = None
            self._transport.abort()  # the client sees that the response is incomplete
            if not isinstance(error, ConnectionError | asyncio.CancelledError):
                _log.error("response aborted", path=request.path, exc_info=error)
            return
        self._task = None
        if not self._complete.done():
            self._complete.cancel()
        self._next()

    async def _write(self, response: HttpResponse, bodiless: bool) -> None:
        send, write = self._h11.send, self._transport.write
        headers = list(response.headers.items())
        if isinstance(response.body, bytes) and response.status != 204:
            headers.append(("content-length", str(len(response.body))))
        if self._h11.their_state is not h11.DONE:
            headers.append(("connection", "close"))
        frames = [send(_head(response.status, headers))]
        if isinstance(response.body, bytes):
            if response.body and not bodiless:
                frames.append(send(h11.Data(data=response.body)))
        elif not bodiless:
            write(frames.pop() or b"")
            await self._stream(response.body)
        frames.append(send(h11.EndOfMessage()))
        write(b"".join(frame or b"" for frame in frames))

    async def _stream(self, body: AsyncIterator[bytes | memoryview]) -> None:
        async for piece in body:
            for start in range(0, len(piece), WRITE_HIGH_WATER):
                await self._drained.wait()
                part = cast(bytes, memoryview(piece)[start : start + WRITE_HIGH_WATER])
                for frame in self._h11.send_with_data_passthrough(h11.Data(data=part)) or ():
                    self._transport.write(frame)
            if self._transport.is_closing():
                raise ConnectionAbortedError("the client has disconnected")

    def _next(self) -> None:
        """Read the next request, if the connection is kept alive."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self._transport.close()
            return
        self._h11.start_next_cycle()
        self._body, self._body_bytes, self._limit = [], 0, 0
        self._transport.resume_reading()
        self._wait()
        self._proceed()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Respond to invalid HTTP, if no response has begun, and close."""
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()
        elif self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reason = str(error).encode()
            headers = [("content-length", str(len(reason))), ("connection", "close")]
            response = _head(error.error_status_hint, headers)
            pieces = (response, h11.Data(data=reason), h11.EndOfMessage())
            self._transport.write(b"".join(self._h11.send(piece) or b"" for piece in pieces))
        self._transport.close()


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    """With a reason phrase, which some clients require."""
    reason = HTTPStatus(status).phrase.encode()
    return h11.Response(status_code=status, headers=headers, reason=reason)


class ApiError(errors.PenstockError):
    """An error with a status of its own."""

    def __init__(self, status: int, word: str, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.status = status
        self.word = word
        self.facts = facts  #: further members of the response


def bad_request(reason: str) -> ApiError:
    return ApiError(400, "bad_request", reason)


#: An error that is not listed has the status of its nearest listed base class.
_STATUS: Final[dict[type[BaseException], tuple[int, str]]] = {
    errors.NotFound: (404, "Object Not Found"),
    errors.AuthenticationFailed: (401, "not_authorized"),
    errors.AccessRefused: (401, "not_authorised"),
    errors.NotAllowed: (401, "not_authorised"),
    errors.ContentTooLarge: (413, "content_too_large"),
    errors.ConnectionForced: (503, "shutting_down"),
    errors.ObjectStoreError: (503, "object_store_unavailable"),
    errors.PenstockError: (400, "bad_request"),
}
_FAULT: Final = (500, "internal_error")

#: Makes browsers and curl ask for credentials.
CHALLENGE: Final = {"www-authenticate": 'Basic realm="Penstock management"'}


def error_status(error: BaseException) -> tuple[int, str]:
    if isinstance(error, ApiError):
        return error.status, error.word
    for kind in type(error).__mro__:
        if (found := _STATUS.get(kind)) is not None:
            return found
    return _FAULT


def error_response(error: BaseException) -> HttpResponse:
    """The details of an internal error are in the log only."""
    status, word = error_status(error)
    reason = "internal error; see the broker's log" if status == 500 else str(error)
    facts = error.facts if isinstance(error, ApiError) else {}
    headers = dict(JSON_HEADERS)
    if isinstance(error, errors.AuthenticationFailed):
        headers |= CHALLENGE
    return HttpResponse(status, encode_json({"error": word, "reason": reason, **facts}), headers)
