"""`python -m benchmarks.pump.served DIR`: small files over HTTP, for as little CPU as Python can.

Prints its URL and serves until it is ended. It knows GET of whole files and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


class _Answering(asyncio.Protocol):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            words = self._received[:end].split(b" ", 2)
            self._received = self._received[end + 4 :]
            self._answer(words[1].decode())

    def _answer(self, path: str) -> None:
        try:
            data = (self._folder / path.lstrip("/")).read_bytes()
        except OSError:
            self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
        self._transport.write(head + data)


async def _serve(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answering(folder), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    sys.stdout.write(f"http://{host}:{port}/\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
