"""An S3 server (moto's, as a process), and a proxy in front of it that misbehaves on demand."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock_spark.lake.storage import StorageLocation

pytest.importorskip("moto.server")

CREDENTIALS = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_region": "us-east-1",
}


@dataclass(frozen=True)
class ObjectStore:
    port: int

    def location(self, prefix: str, port: int | None = None, **options: str) -> StorageLocation:
        url = f"http://127.0.0.1:{port or self.port}"
        given = {**CREDENTIALS, "aws_endpoint_url": url, **options}
        return StorageLocation.parse(f"s3://lake/{prefix}", given)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/lake", method="PUT")
                urllib.request.urlopen(request, timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, "moto's server has ended"
                time.sleep(0.1)
        yield ObjectStore(port)
    finally:
        server.terminate()
        server.wait()


#: Decides about a request by its method and path: "pass", "lose" (the server does it, and the
#: client hears nothing), or a status to answer with.
Fault = Callable[[str, str], "str | int"]


@contextmanager
def faulty(store: ObjectStore, fault: Fault) -> Iterator[int]:
    """The port of a proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            decision = fault(self.command, self.path)
            if isinstance(decision, int):
                self._answer(decision, b"<Error><Code>Fault</Code></Error>", {})
                return
            upstream = HTTPConnection("127.0.0.1", store.port, timeout=30)
            upstream.request(self.command, self.path, body, dict(self.headers))
            response = upstream.getresponse()
            content = response.read()
            if decision == "lose":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._answer(response.status, content, dict(response.getheaders()))

        def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

        def log_message(self, *args: object) -> None:
            pass

    # The proxy answers while delta-rs waits in this process, which holds no lock of Python's in
    # its commits.
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
