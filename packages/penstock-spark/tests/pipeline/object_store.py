"""An S3 server (moto's, as a process), and a proxy in front of it that misbehaves on demand."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

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


@dataclass(frozen=True)
class OneFault:
    """Befalls the first request with all these words in its method and path."""

    words: tuple[str, ...]
    decision: str | int


@contextmanager
def faulty_process(store: ObjectStore, faults: Sequence[OneFault]) -> Iterator[FaultyProcess]:
    """The proxy as a process: delta-rs' file system holds Python's lock while it waits."""
    parent, child = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve_faults, args=(store, tuple(faults), child), daemon=True
    )
    process.start()
    try:
        yield FaultyProcess(parent.recv(), parent)
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True)
class FaultyProcess:
    port: int
    _pipe: Connection

    def left(self) -> list[OneFault]:
        """Faults that have not befallen a request."""
        self._pipe.send(None)
        found: list[OneFault] = self._pipe.recv()
        return found


def _serve_faults(store: ObjectStore, faults: tuple[OneFault, ...], pipe: Connection) -> None:
    left = list(faults)

    def decide(method: str, path: str) -> str | int:
        for each in left:
            if all(word in f"{method} {path}" for word in each.words):
                left.remove(each)
                return each.decision
        return "pass"

    with faulty(store, decide) as port:
        pipe.send(port)
        while True:
            pipe.recv()
            pipe.send(left)
