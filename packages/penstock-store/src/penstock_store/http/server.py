"""Serves an ASGI application with uvicorn on the event loop of a command, which handles signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ConfigurationError, PenstockError

if TYPE_CHECKING:
    from fastapi import FastAPI

#: For running requests; event streams are cancelled.
_SHUTDOWN_SECONDS: Final = 3
_LOCAL: Final = ("127.0.0.0/8", "::1")


def is_local_only(host: str) -> bool:
    """Whether the address is a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of a server for HTTPS; None without a certificate."""
    if certificate is None:
        if key is not None:
            raise ConfigurationError(f"the key {key} needs a certificate")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot use the certificate {certificate}: {error}") from error
    return context


@contextlib.asynccontextmanager
async def serve_app(
    app: FastAPI,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    proxies: Sequence[str] = (),
) -> AsyncIterator[str]:
    """Yields the URL when the application is ready; raises if it does not start. Of `proxies`, and
    of loopback, X-Forwarded-For and X-Forwarded-Proto are accepted."""
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

    tls = open_tls(certificate, key)
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=TimeoutHttpProtocol,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        forwarded_allow_ips=[*_LOCAL, *proxies],
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    if tls is not None:
        config.load()
        config.ssl = tls
    server = Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    starting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((starting, serving), return_when=asyncio.FIRST_COMPLETED)
        if not server.started:
            raise PenstockError("the application did not start; see the log")
        failure: Exception | None = getattr(app.state, "failure", None)
        if failure is not None:
            raise failure
        name, bound = listener.getsockname()[:2]
        yield f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{bound}"
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
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from error
