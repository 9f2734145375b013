"""uvicorn's HTTP/1.1 protocol with time and size limits for requests.

uvicorn limits only idle connections between two requests, so a client could hold a connection by
sending a request slowly (Slowloris). Here

* the head of a request has `head` seconds and `MAX_HEADER_BYTES`;
* its body has `body` seconds, plus one for each `rate` bytes. Time while the server has paused
  reading does not count.

Slower requests get 408, larger heads 431, and the connection is closed. A request in one read needs
no timer. Responses have no limit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

#: Request line and headers, beyond the first read.
MAX_HEADER_BYTES: Final = 64 * 1024
#: Overhead of a chunked body per byte.
_FRAMING: Final = 16


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    head: float = 10.0  #: seconds
    body: float = 20.0  #: seconds
    rate: int = 4096  #: bytes a second


class _Stage(Enum):
    HEAD = auto()  #: waiting for a request or its headers
    BODY = auto()  #: the headers are complete
    DONE = auto()  #: the request is complete, or the connection is idle


class TimeoutHttpProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        timeouts: RequestTimeouts | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timeouts = timeouts or RequestTimeouts()
        self._stage = _Stage.HEAD
        self._timer: asyncio.TimerHandle | None = None  #: of the stage
        self._since = 0.0  #: when it was set first
        self._request = 0  #: its number on this connection
        self._body_bytes = 0
        self._other_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(_Stage.DONE)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._request, self._stage
        body_bytes = self._body_bytes
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if before == (self._request, self._stage):
            self._other_bytes += len(data) - (self._body_bytes - body_bytes)
            if self._other_bytes > MAX_HEADER_BYTES + _FRAMING * self._body_bytes:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
        idle = self._stage is _Stage.DONE and not self._responding
        if idle and self.timeout_keep_alive_task is None:
            self._enter(_Stage.HEAD)  # such as blank lines before a request
        if self._stage is not _Stage.DONE and self._timer is None:
            self._expect()

    def handle_websocket_upgrade(self) -> None:
        self._enter(_Stage.DONE)
        super().handle_websocket_upgrade()

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request += 1
        self._body_bytes = self._other_bytes = 0
        if self._stage is not _Stage.HEAD:
            self._enter(_Stage.HEAD)

    def on_headers_complete(self) -> None:
        self._enter(_Stage.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._enter(_Stage.DONE)
        super().on_message_complete()

    @property
    def _responding(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is not None and not cycle.response_complete

    def _enter(self, stage: _Stage) -> None:
        self._stage = stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect(self) -> None:
        self._since = self.loop.time()
        self._timer = self.loop.call_at(self._deadline(), self._expire)

    def _deadline(self) -> float:
        limits = self._timeouts
        if self._stage is _Stage.HEAD:
            return self._since + limits.head
        return self._since + limits.body + self._body_bytes / limits.rate

    def _expire(self) -> None:
        if self.flow.read_paused:
            self._expect()
        elif (deadline := self._deadline()) > self.loop.time():
            self._timer = self.loop.call_at(deadline, self._expire)
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        """Respond, unless another response is running, and close."""
        responding = self._responding
        if self._stage is _Stage.BODY and not self.pipeline:
            responding = self.cycle.response_started
        self._enter(_Stage.DONE)
        if responding or not self._request or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        body = status.phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, body, len(body), body)
        )
        self.transport.close()
