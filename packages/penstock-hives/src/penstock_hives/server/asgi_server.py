"""An ASGI server on a listening socket, with uvicorn's HTTP protocol and a drain:

1. The server accepts no more connections. The socket stays open in the master, so queued
   connections go to another worker.
2. `draining` is set: responses have `Connection: close`, and streams end.
3. Idle connections stay open for `linger` seconds, so that a request in flight is not lost.
4. Then idle connections are closed; running requests have `drain` seconds and are cancelled after.
"""

from __future__ import annotations

import asyncio
import socket
from email.utils import formatdate
from typing import Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.core.logs import get_logger
from penstock_hives.server.asgi import AsgiApplication, Message, Receive, Scope, Send
from penstock_hives.server.settings import EngineSettings
from penstock_store.http.timeouts import RequestTimeouts, TimeoutHttpProtocol

log = get_logger(__name__)

#: uvicorn has no event for closed connections.
_POLL_SECONDS: Final = 0.05
_CLOSE: Final = (b"connection", b"close")


class AsgiServer:
    def __init__(
        self, application: AsgiApplication, settings: EngineSettings, draining: asyncio.Event
    ) -> None:
        self._settings = settings
        self._draining = draining
        self._config = Config(
            app=self._closing(application),
            http=TimeoutHttpProtocol,
            ws="websockets-sansio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in settings.trusted_proxies],
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
            lambda: TimeoutHttpProtocol(self._config, self._state, {}, timeouts=timeouts),
            sock=listener,
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

    def _closing(self, application: AsgiApplication) -> AsgiApplication:
        """Adds `Connection: close` to responses while draining."""
        draining = self._draining

        async def application_with_close(scope: Scope, receive: Receive, send: Send) -> None:
            if not draining.is_set() or scope["type"] != "http":
                await application(scope, receive, send)
                return

            async def send_close(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
                await send(message)

            await application(scope, receive, send_close)

        return application_with_close
