"""An ASGI application, served on the loop of a command until that command ends.

The command catches the signals, as all of ours do; the socket is bound before anything else, so
port 0 has a number when the command says that it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ConfigurationError, PenstockError

if TYPE_CHECKING:
    from fastapi import FastAPI

#: What is being answered may be finished; whoever listens to events is told to come again.
_SHUTDOWN_SECONDS: Final = 3


def is_local_only(host: str) -> bool:
    """Whether only programs on this machine reach what listens on that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def serve_app(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """The URL, once the application is ready to answer; or what kept it from that."""
    import uvicorn

    from penstock_store.http.timeouts import TimeoutHttpProtocol

    ready = asyncio.Event()

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=TimeoutHttpProtocol,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    starting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((starting, serving), return_when=asyncio.FIRST_COMPLETED)
        if not server.started:
            raise PenstockError("the application did not start; the log says why")
        failure: Exception | None = getattr(app.state, "failure", None)
        if failure is not None:
            raise failure
        name, bound = listener.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        yield f"http://{shown}:{bound}"
    finally:
        starting.cancel()
        server.should_exit = True
        await serving
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on: {error.strerror}"
        ) from error
