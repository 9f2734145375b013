"""An HTTP server of files that can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from penstock_pump.transports.access import FileRule, HostRule

#: Servers of tests are on loopback, and their files in temporary directories.
LOOPBACK = HostRule(private=True)
EVERY_FILE = FileRule((Path("/"),))


class FileServer(ThreadingHTTPServer):
    """Serves a folder; `faults` says what goes wrong with the next requests, one each."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.folder = folder
        self.faults: list[str] = []
        self.asked: list[tuple[str, str | None]] = []
        self.stalled = threading.Event()  #: set to let those that stall go
        self.ranges = True
        self.authorized: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        self.server.authorized.append(self.headers.get("Authorization"))
        path = self.server.folder / unquote(urlsplit(self.path).path).lstrip("/")
        if fault.startswith("to:"):
            self.send_response(302)
            self.send_header("Location", fault.removeprefix("to:"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path.is_dir() and self.path.endswith("/"):
            self._send_index(path)
            return
        if fault.isdigit() or not path.is_file():
            self.send_response(int(fault) if fault else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        if fault == "other":
            data = bytes(byte ^ 1 for byte in data)
        elif fault == "more":
            data += b"more"
        elif fault == "less":
            data = data[:-1]
        begin, end = 0, len(data)
        if wanted and self.server.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), int(last) + 1 if last else len(data)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        part = data[begin:end]
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if fault in ("die", "stall"):
            self.wfile.write(part[: len(part) // 2])
            self.wfile.flush()
            if fault == "stall":
                self.server.stalled.wait(30)
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(part)

    def _send_index(self, folder: Path) -> None:
        """As Apache and nginx write it: a link, a time and a size."""
        lines = ['<html><body><pre><a href="../">../</a>']
        for each in sorted(folder.iterdir()):
            slash, size = ("/", "-") if each.is_dir() else ("", str(each.stat().st_size))
            at = datetime.fromtimestamp(each.stat().st_mtime, UTC).strftime("%d-%b-%Y %H:%M")
            lines.append(f'<a href="{quote(each.name)}{slash}">{each.name}</a>  {at}  {size}')
        page = "\n".join((*lines, "</pre></body></html>")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_PUT(self) -> None:
        path = self.server.folder / unquote(self.path).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if "Content-Length" in self.headers:
            path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        path = self.server.folder / unquote(self.path).lstrip("/")
        there = path.is_file()
        path.unlink(missing_ok=True)
        self.send_response(204 if there else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard's name
        pass


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[FileServer]:
    with FileServer(folder, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.stalled.set()
            server.shutdown()
            thread.join()
