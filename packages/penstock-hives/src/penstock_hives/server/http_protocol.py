"""The HTTP protocol of a worker: requests whose response is in memory are answered at once.

A response that an `ImmediateResponder` has ready is written while the request is parsed, without a
task, a scope and messages: several times faster than by ASGI. All other requests take the usual
way. Order on a connection is retained: while a response runs, later requests wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from penstock_store.http.timeouts import RequestTimeouts, TimeoutHttpProtocol


@dataclass(frozen=True, slots=True)
class ImmediateResponse:
    location: str  #: for metrics
    status: int
    head: bytes  #: status line and headers; the date follows
    body: bytes


class ImmediateResponder(Protocol):
    """What an application has beside its ASGI interface."""

    def respond(
        self, target: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> ImmediateResponse | None:
        """The response to a GET request without a body, if it is in memory."""


#: The client's address, its request, the response, and the time that it took.
Observer = Callable[[str, bytes, Sequence[tuple[bytes, bytes]], ImmediateResponse, float], None]


class _Answered:
    """Stands for the cycle of a request that was answered at once."""

    response_complete = response_started = disconnected = True
    message_event: Final = asyncio.Event()


class ImmediateHttpProtocol(TimeoutHttpProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        timeouts: RequestTimeouts,
        responder: ImmediateResponder,
        observe: Observer,
        draining: asyncio.Event,
    ) -> None:
        super().__init__(config, server_state, app_state, timeouts=timeouts)
        self._responder = responder
        self._observe = observe
        self._draining = draining

    def on_headers_complete(self) -> None:
        if not self._respond():
            super().on_headers_complete()

    def _respond(self) -> bool:
        parser = self.parser
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if (
            parser.get_method() != b"GET"
            or not (cycle is None or cycle.response_complete)
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or self.flow.write_paused
            or self._draining.is_set()
            or len(self.connections) >= (self.limit_concurrency or 0)
        ):
            return False
        began = perf_counter()
        response = self._responder.respond(self.url, self.headers)
        if response is None:
            return False
        if cycle is None:
            self.cycle = cast(RequestResponseCycle, _Answered)
        date = self.server_state.default_headers[0][1]
        self.transport.write(b"%bdate: %b\r\n\r\n%b" % (response.head, date, response.body))
        self.on_response_complete()
        client = self.client[0] if self.client else "unknown"
        self._observe(client, self.url, self.headers, response, perf_counter() - began)
        return True
