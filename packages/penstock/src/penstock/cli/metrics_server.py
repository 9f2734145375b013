"""An HTTP server for Prometheus on loopback, for commands with `--metrics`.

A scrape has a total timeout, so a silent client does not keep a thread.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SCRAPE_TIMEOUT_SECONDS: Final = 10.0


def serve_metrics(
    port: int, registry: CollectorRegistry, seconds: float = SCRAPE_TIMEOUT_SECONDS
) -> tuple[int, Callable[[], None]]:
    """The port, and a function that closes the server."""
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from prometheus_client import make_wsgi_app
    from prometheus_client.exposition import ThreadingWSGIServer

    class Handler(WSGIRequestHandler):
        def handle(self) -> None:
            timer = threading.Timer(seconds, self._cut)
            timer.start()
            try:
                super().handle()
            finally:
                timer.cancel()

        def _cut(self) -> None:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
            pass

    server = make_server(
        "127.0.0.1", port, make_wsgi_app(registry), ThreadingWSGIServer, handler_class=Handler
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close
