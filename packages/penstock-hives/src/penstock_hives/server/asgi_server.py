"""An ASGI server on a listening socket, with uvicorn's HTTP protocol and a drain:

1. The server accepts no more connections. The socket stays open in the master, so queued
   connections go to another worker.
2. `draining` is set: responses have `Connection: close`, and streams end.
3. Idle connections stay open for `linger` seconds, so that a request in flight is not lost.
4. Then idle connections are closed; running requests have `drain` seconds and are cancelled after.

Every request is counted, logged if there is an access log, and logged as slow after two seconds. An
application that is an `ImmediateResponder` answers from memory before anything else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from email.utils import formatdate
from time import perf_counter
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from penstock.core.logs import get_logger
from penstock_hives.server.access_log import AccessEntry, AccessLog
from penstock_hives.server.asgi import AsgiApplication, Message, Receive, Scope, Send
from penstock_hives.server.http_protocol import (
    ImmediateHttpProtocol,
    ImmediateResponder,
    ImmediateResponse,
)
from penstock_hives.server.metrics import RequestMetrics
from penstock_hives.server.settings import EngineSettings
from penstock_store.http.server import open_tls
from penstock_store.http.timeouts import RequestTimeouts, TimeoutHttpProtocol

log = get_logger(__name__)

#: uvicorn has no event for closed connections.
_POLL_SECONDS: Final = 0.05
#: Slower requests are logged; streams are not.
SLOW_SECONDS: Final = 2.0
_CLOSE: Final = (b"connection", b"close")


class AsgiServer:
    def __init__(
        self, application: AsgiApplication, settings: EngineSettings, draining: asyncio.Event
    ) -> None:
        self._settings = settings
        self._draining = draining
        self._application = application
        self._metrics = RequestMetrics()
        log_file = settings.access_log
        self._log = log_file and AccessLog(log_file, settings.access_log_format)
        self._proxies = ProxyHeadersMiddleware(
            cast(Any, self._observed(application)), settings.trusted_proxies
        )
        self._config = Config(
            app=self._proxies,
            http=TimeoutHttpProtocol,
            ws="websockets-sansio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections,
            timeout_keep_alive=max(1, round(settings.keep_alive)),
            # Messages are small: compression would cost memory per connection.
            ws_per_message_deflate=False,
            ws_max_size=64 * 1024,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._clock: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        """The total so far."""
        return self._state.total_requests

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        given = self._settings
        timeouts = RequestTimeouts(given.header_timeout, given.body_timeout, given.body_rate)
        self._clock = asyncio.create_task(self._update_date())
        self._server = await loop.create_server(
            lambda: self._protocol(timeouts),
            sock=listener,
            ssl=open_tls(self._settings.certificate, self._settings.key),
            backlog=self._settings.backlog,
        )

    async def drain(self) -> None:
        assert self._server is not None, "not started"
        assert self._clock is not None
        self._server.close()
        self._draining.set()
        await self._wait_closed(self._settings.linger)
        for connection in list(self._state.connections):
            connection.shutdown()
        if not await self._wait_closed(self._settings.drain):
            log.warning("drain timed out", requests=len(self._state.tasks))
            for task in list(self._state.tasks):
                task.cancel()
            await self._wait_closed(1.0)
        self._clock.cancel()
        if self._log:
            self._log.close()

    async def _wait_closed(self, seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._state.connections or self._state.tasks:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _update_date(self) -> None:
        """The Date header is formatted once a second."""
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1.0)

    def _protocol(self, timeouts: RequestTimeouts) -> TimeoutHttpProtocol:
        if not hasattr(self._application, "respond"):
            return TimeoutHttpProtocol(self._config, self._state, {}, timeouts=timeouts)
        responder = cast(ImmediateResponder, self._application)
        return ImmediateHttpProtocol(
            *(self._config, self._state, {}, timeouts),
            *(responder, self._observe_immediate, self._draining),
        )

    def _observe_immediate(
        self,
        client: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        response: ImmediateResponse,
        seconds: float,
    ) -> None:
        sent = len(response.body)
        self._metrics.observe(response.location, "GET", response.status, sent, seconds)
        if self._log:
            path = target.partition(b"?")[0].decode("latin-1")
            where = self._forwarded_client(client, headers)
            facts = ("GET", path, "HTTP/1.1", response.status, sent, seconds, headers)
            self._log.add(AccessEntry(where, *facts))

    def _forwarded_client(self, client: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The client's address; of a trusted proxy, the one that it forwards for."""
        proxies = self._proxies.trusted_hosts
        if client not in proxies:
            return client
        forwarded = b", ".join(value for name, value in headers if name == b"x-forwarded-for")
        return proxies.get_trusted_client_address(forwarded.decode("latin-1"))[0] or client

    def _observed(self, application: AsgiApplication) -> AsgiApplication:
        """Counts and logs requests; adds `Connection: close` to responses while draining."""
        draining = self._draining

        async def observed_application(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            began = perf_counter()
            status, sent, is_stream = 500, 0, False

            async def observed_send(message: Message) -> None:
                nonlocal status, sent, is_stream
                if message["type"] == "http.response.start":
                    status = message["status"]
                    if draining.is_set():
                        message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
                else:
                    sent += len(message.get("body", b""))
                    is_stream = is_stream or message.get("more_body", False)
                await send(message)

            path = scope["path"]  # as requested: a location may rewrite it
            try:
                await application(scope, receive, observed_send)
            finally:
                seconds = perf_counter() - began
                location, method = scope.get("location", "none"), scope["method"]
                self._metrics.observe(location, method, status, sent, seconds)
                if self._log:
                    client = (scope["client"] or ["unknown"])[0]
                    protocol = f"HTTP/{scope['http_version']}"
                    facts = (method, path, protocol, status, sent, seconds, scope["headers"])
                    self._log.add(AccessEntry(client, *facts))
                if seconds > SLOW_SECONDS and not is_stream:
                    took = round(seconds, 2)
                    log.warning("slow request", path=path, status=status, seconds=took)

        return observed_application

    def report(self) -> dict[str, Any]:
        """Metrics of this worker, for the master."""
        figures: dict[str, Any] = getattr(self._application, "figures", dict)()
        return self._metrics.report({"connections": self.connections, **figures})
