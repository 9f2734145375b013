"""WebSocket gates on a port, and the terminals behind them that keep what they are told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from penstock.server.websocket import WebSocketConnection, WebSocketTransport
from tests.server.websocket.test_request import POLICY, request

SUBPROTOCOLS = ("mqtt", "mqttv3.1")
PATHS = frozenset({"/", "/ws", "/mqtt"})
MAX_BYTES = 1 << 24
MQTT = Subprotocol("mqtt")


class Terminal(asyncio.Protocol):
    """Keeps what it is told, and can be waited for."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport: WebSocketTransport
        self.made = asyncio.Event()
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = False
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        self.paused, self.resumed = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(WebSocketTransport, transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.heard.put_nowait(data)

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.paused.set()

    def resume_writing(self) -> None:
        self.resumed.set()

    async def hear(self, count: int) -> bytes:
        """So many bytes, in however many pieces."""
        data = b""
        while len(data) < count:
            data += await self.heard.get()
        return data


class Server:
    """Gates on a port, each with a terminal behind it."""

    def __init__(self, timeout: float, tls: ssl.SSLContext | None) -> None:
        self._timeout = timeout
        self._tls = tls
        self.terminals: list[Terminal] = []
        self.handshaking: set[WebSocketConnection] = set()
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for terminal in self.terminals:
            if terminal.made.is_set():
                terminal.transport.abort()
        for gate in list(self.handshaking):
            gate.abort()
        await asyncio.gather(*(each.lost for each in self.terminals if each.made.is_set()))

    def _connection(self) -> WebSocketConnection:
        terminal = Terminal()
        self.terminals.append(terminal)
        return WebSocketConnection(
            terminal, SUBPROTOCOLS, PATHS, MAX_BYTES, self._timeout, POLICY, self.handshaking
        )

    def client(self, path: str = "/ws", **options: Any) -> connect:
        options = {"subprotocols": [MQTT], "max_size": None, **options}
        scheme = "wss" if "ssl" in options else "ws"
        return connect(f"{scheme}://127.0.0.1:{self.port}{path}", **options)

    async def raw(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which one says what one likes; open, unless something else is sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent or request())
        if not sent:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return reader, writer

    @property
    def terminal(self) -> Terminal:
        [terminal] = self.terminals
        return terminal


def frame(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


async def closed(client: ClientConnection) -> tuple[int | None, str | None]:
    """What the client was told when the connection was closed."""
    with pytest.raises(ConnectionClosed):
        await client.recv()
    return client.close_code, client.close_reason
