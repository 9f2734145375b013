"""uvicorn's HTTP/1.1 protocol with limits on how slowly and how long-winded a request may come.

uvicorn limits idle connections between two requests only: a client that connects and says nothing,
or sends a header a minute, keeps its connection for ever. Here

* a request's head has `head` seconds, from the connection or the first byte of the request, and
  `MAX_HEADER_BYTES`;
* its body has `body` seconds, and one more for each `rate` bytes of it. While the server itself has
  stopped reading, the time does not count.

Who takes longer gets 408, or 431 for a head that is too large, and the connection is closed. A
request that comes in one read costs no timer. Answers may take any time: streams do.
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

#: Request line and headers, beyond the read they began in.
MAX_HEADER_BYTES: Final = 64 * 1024
#: What a chunked body may have around each byte of it.
_FRAMING: Final = 16


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    head: float = 10.0  #: seconds
    body: float = 20.0  #: seconds
    rate: int = 4096  #: bytes a second


class _Stage(Enum):
    HEAD = auto()  #: the next request, or what is there of it, has not all its headers
    BODY = auto()  #: its headers are complete
    DONE = auto()  #: all of it is here; the answer is under way, or the connection is idle


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
        idle = self._stage is _Stage.DONE and not self._answering
        if idle and self.timeout_keep_alive_task is None:
            self._enter(_Stage.HEAD)  # blank lines before a request, say
        if self._stage is not _Stage.DONE and self._timer is None:
            self._expect()

    def handle_websocket_upgrade(self) -> None:
        self._enter(_Stage.DONE)
        super().handle_websocket_upgrade()

    # What the parser finds.

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
    def _answering(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is not None and not cycle.response_complete

    # Time.

    def _enter(self, stage: _Stage) -> None:
        self._stage = stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect(self) -> None:
        """The rest of the stage, in time."""
        self._since = self.loop.time()
        self._timer = self.loop.call_at(self._deadline(), self._expire)

    def _deadline(self) -> float:
        given = self._timeouts
        if self._stage is _Stage.HEAD:
            return self._since + given.head
        return self._since + given.body + self._body_bytes / given.rate

    def _expire(self) -> None:
        if self.flow.read_paused:
            self._expect()
        elif (deadline := self._deadline()) > self.loop.time():
            self._timer = self.loop.call_at(deadline, self._expire)
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        """Say so if no other answer is under way, and close."""
        answering = self._answering
        if self._stage is _Stage.BODY and not self.pipeline:
            answering = self.cycle.response_started
        self._enter(_Stage.DONE)
        if answering or not self._request or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        body = status.phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, body, len(body), body)
        )
        self.transport.close()
