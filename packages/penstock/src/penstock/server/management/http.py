"""One HTTP/1.1 connection: bytes to requests, responses to bytes. The protocol itself is h11's.

Requests on a connection are answered one after the other. A request is handed on when its head has
come; its body is read when the handler asks, up to the size the handler allows, so that a stranger
holds little memory. Reading stops while an answer is on its way, writing waits for a socket that
is behind. Who sends nothing for a while, or half a request, is dropped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import h11

from penstock.core import errors
from penstock.core.errors import ContentTooLarge
from penstock.core.logs import get_logger

# Requests and responses as values: what `connection.py` reads and writes, and handlers see.

JSON_HEADERS: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str  #: as it was sent, still percent-encoded, without the query
    query: Mapping[str, str]
    headers: Mapping[str, str]  #: by lower-case name
    peer: str  #: the address it came from
    read: Callable[[int], Awaitable[bytes]]  #: the body, refused when it is larger than that
    transport: asyncio.BaseTransport | None = None  #: the connection it came by


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int = 200
    body: bytes | AsyncIterator[bytes | memoryview] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


#: Done, and there is nothing more to say.
NO_CONTENT: Final = HttpResponse(204)
CREATED: Final = HttpResponse(201)


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, encode_json(value), JSON_HEADERS)


def encode_json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    """What field tables hold and JSON does not, as RabbitMQ shows it."""
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case set() | frozenset() | tuple():
            return list(value)
    return str(value)


_log = get_logger("penstock.management")

RequestHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]

#: How long a connection may say nothing, or take to send a request.
IDLE_SECONDS: Final = 60.0
#: ... and to send the first: nobody knows yet who it is.
FIRST_REQUEST_SECONDS: Final = 10.0
#: A request's line and headers.
MAX_HEADER_BYTES: Final = 32 * 1024
#: What is taken of a body before the handler has asked for it.
MAX_PIPELINED_BYTES: Final = 64 * 1024
#: A long answer is written in pieces of this size, each once the one before has left.
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
        self._limit = 0  # what the handler has asked for
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
        # An answer under way is still delivered, but TLS knows no half of a connection.
        return self._task is not None and not self._tls

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The answer under way."""
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

    # In.

    def _proceed(self) -> None:
        """Take what h11 has found, until it needs more or the answer comes first."""
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
                case _:  # NEED_DATA, or PAUSED until this request has been answered
                    return
        self._transport.pause_reading()
        if self._limit and not self._complete.done():
            self._complete.set_exception(
                ContentTooLarge(f"a body of more than {self._limit} bytes is not taken here")
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
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._transport.write(self._h11.send(go_on) or b"")
        if not self._complete.done():
            self._transport.resume_reading()
            self._proceed()
        await self._complete
        if self._body_bytes > limit:
            raise ContentTooLarge(f"a body of more than {limit} bytes is not taken here")
        return b"".join(self._body)

    # Out.

    async def _serve(self, request: HttpRequest) -> None:
        # The timer goes on until the body has come: a request takes no longer than that to send.
        self._complete.add_done_callback(lambda _: self._stop_waiting())
        try:
            response = await self._answer(request)
            self._stop_waiting()
            await self._write(response, request.method == "HEAD")
        except BaseException as error:
            self._task = None
            self._transport.abort()  # the client sees that the answer is not whole
            if not isinstance(error, ConnectionError | asyncio.CancelledError):
                _log.error("answer broken off", path=request.path, exc_info=error)
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
            await self._pour(response.body)
        frames.append(send(h11.EndOfMessage()))
        write(b"".join(frame or b"" for frame in frames))

    async def _pour(self, body: AsyncIterator[bytes | memoryview]) -> None:
        async for piece in body:
            for start in range(0, len(piece), WRITE_HIGH_WATER):
                await self._drained.wait()
                part = cast(
                    bytes, memoryview(piece)[start : start + WRITE_HIGH_WATER]
                )  # h11 passes it on
                for frame in self._h11.send_with_data_passthrough(h11.Data(data=part)) or ():
                    self._transport.write(frame)
            if self._transport.is_closing():
                raise ConnectionAbortedError("the client has gone")

    def _next(self) -> None:
        """On to the next request, if there is to be one on this connection."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            self._transport.close()
            return
        self._h11.start_next_cycle()
        self._body, self._body_bytes, self._limit = [], 0, 0
        self._transport.resume_reading()
        self._wait()
        self._proceed()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """What came is no HTTP: say so, if that is still possible, and close."""
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
    """The status line has its reason phrase: some clients do not take one without."""
    reason = HTTPStatus(status).phrase.encode()
    return h11.Response(status_code=status, headers=headers, reason=reason)


# Errors as HTTP tells them: a status, a word for programs and a reason for people.
#
# The one place where Penstock's errors meet HTTP. Statuses and words are RabbitMQ's, whose plugin
# answers 401 also to a user it knows but will not let do a thing, and 400 to whatever AMQP would
# close a channel for.


class ApiError(errors.PenstockError):
    """A request that HTTP alone can get wrong."""

    def __init__(self, status: int, word: str, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.status = status
        self.word = word
        self.facts = facts  #: further members of the answer


def bad_request(reason: str) -> ApiError:
    return ApiError(400, "bad_request", reason)


#: An error that is not listed is answered like the nearest of its ancestors that is.
_STATUS: Final[dict[type[BaseException], tuple[int, str]]] = {
    errors.NotFound: (404, "Object Not Found"),
    errors.AuthenticationFailed: (401, "not_authorized"),
    errors.AccessRefused: (401, "not_authorised"),
    errors.NotAllowed: (401, "not_authorised"),
    errors.ContentTooLarge: (413, "content_too_large"),
    errors.ConnectionForced: (503, "shutting_down"),
    errors.PenstockError: (400, "bad_request"),
}
_FAULT: Final = (500, "internal_error")

#: What makes a browser, or curl, ask for a name and a password.
CHALLENGE: Final = {"www-authenticate": 'Basic realm="Penstock management"'}


def error_status(error: BaseException) -> tuple[int, str]:
    if isinstance(error, ApiError):
        return error.status, error.word
    for kind in type(error).__mro__:
        if (found := _STATUS.get(kind)) is not None:
            return found
    return _FAULT


def error_response(error: BaseException) -> HttpResponse:
    """What a client hears of an error; a fault of the broker's own is told to the log alone."""
    status, word = error_status(error)
    reason = "the broker's log says more" if status == 500 else str(error)
    facts = error.facts if isinstance(error, ApiError) else {}
    headers = dict(JSON_HEADERS)
    if isinstance(error, errors.AuthenticationFailed):
        headers |= CHALLENGE
    return HttpResponse(status, encode_json({"error": word, "reason": reason, **facts}), headers)
