"""Azurite, Microsoft's emulator of Azure's object store, which checks signatures.

It ignores the parameter `startFrom` of a list, which Azure's store and delta-rs use: a proxy leaves
out the names before it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.peers import PeerMissing, Process, find_program, free_port
from tests.pipeline.cloud_stores import CONTAINER, CloudStore
from tests.pipeline.server_process import server_process

PROGRAM: Final = Path(__file__).parents[4] / ".peers/node_modules/.bin/azurite-blob"
#: Azurite's only account, which its documentation names.
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_VERSION: Final = "2021-08-06"


@contextmanager
def azurite_store(folder: Path) -> Iterator[CloudStore]:
    """With an empty container."""
    node = find_program("node", "nodejs")
    if not PROGRAM.exists():
        raise PeerMissing("azurite is not installed (scripts/peers)")
    port = free_port()
    command = [node, str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--location", str(folder), "--disableTelemetry", "--silent"]
    server = Process(command, folder / "azurite.log", {})
    try:
        server.wait_for_port(port)
        _create_container(port)
        with server_process(_serve, port) as front:
            options = {
                "azure_storage_account_name": ACCOUNT,
                "azure_storage_account_key": KEY,
                "azure_storage_endpoint": f"http://127.0.0.1:{front}/{ACCOUNT}",
            }
            yield CloudStore("az", options)
    finally:
        server.end(signal.SIGKILL)


def _create_container(port: int) -> None:
    path, date = f"/{ACCOUNT}/{CONTAINER}", formatdate(usegmt=True)
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{_VERSION}"]
    signed = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    url = f"http://127.0.0.1:{port}{path}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


def _serve(port: int, pipe: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"port": port}))
    pipe.send(server.server_address[1])
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    port: int

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        upstream = HTTPConnection("127.0.0.1", self.port, timeout=30)
        upstream.request(self.command, self.path, body, dict(self.headers))
        response = upstream.getresponse()
        content = response.read()
        if start := parse_qs(urlsplit(self.path).query).get("startFrom"):
            content = _from(start[0], content.decode()).encode()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("content-length", "connection", "date", "transfer-encoding"):
                self.send_header(name, value)
        length = response.headers.get("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        with suppress(ConnectionError):  # of a client that has read enough
            self.wfile.write(content)
        upstream.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def log_message(self, *args: object) -> None:
        pass


def _from(start: str, answer: str) -> str:
    """A list without the names before this one."""
    blobs = re.compile(r"<Blob><Name>(.*?)</Name>.*?</Blob>", re.DOTALL)
    return blobs.sub(lambda found: found[0] if found[1] >= start else "", answer)
