"""An ASGI application on a listening socket: accepting, and the end of it, in order.

uvicorn's protocol reads requests and writes responses; what is here is the part of a server around
it that a drain needs to have in hand:

1. nobody new is accepted. The socket itself stays open elsewhere, so whoever waits in its queue is
   answered by another worker, and nobody is turned away;
2. `draining` is set: responses say `Connection: close`, streams end and their clients come back;
3. idle connections stay for a moment (`linger`). A client that reuses one meanwhile gets its answer
   and the word to go; one closed under its hands would have lost a request;
4. then idle ones are closed, requests at hand have until the deadline, and the rest is cancelled.
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

#: How often the end of connections is looked for: uvicorn tells nobody.
_LOOK_SECONDS: Final = 0.05
_CLOSE: Final = (b"connection", b"close")


class AsgiServer:
    """One application, one socket, one loop."""

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
            proxy_headers=False,
            limit_concurrency=settings.connections,
            timeout_keep_alive=max(1, round(settings.keep_alive)),
            # Figures are small: compressing each costs more memory a connection than it saves.
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
        """All that were answered so far."""
        return self._state.total_requests

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        given = self._settings
        timeouts = RequestTimeouts(given.header_timeout, given.body_timeout, given.body_rate)
        self._clock = asyncio.create_task(self._tell_date())
        self._server = await loop.create_server(
            lambda: TimeoutHttpProtocol(self._config, self._state, {}, timeouts=timeouts),
            sock=listener,
            backlog=self._settings.backlog,
        )

    async def drain(self) -> None:
        """The end, in the order above."""
        assert self._server is not None, "not started"
        assert self._clock is not None
        self._server.close()
        self._draining.set()
        await self._until_gone(self._settings.linger)
        for connection in list(self._state.connections):
            connection.shutdown()
        if not await self._until_gone(self._settings.drain):
            log.warning("drain ran out of time", requests=len(self._state.tasks))
            for task in list(self._state.tasks):
                task.cancel()
            await self._until_gone(1.0)
        self._clock.cancel()

    async def _until_gone(self, seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._state.connections or self._state.tasks:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _tell_date(self) -> None:
        """Every response has the date; it is spelled once a second."""
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1.0)

    def _closing(self, application: AsgiApplication) -> AsgiApplication:
        """The application; once draining, its responses end their connections."""
        draining = self._draining

        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            if not draining.is_set() or scope["type"] != "http":
                await application(scope, receive, send)
                return

            async def last(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
                await send(message)

            await application(scope, receive, last)

        return served
