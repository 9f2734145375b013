"""The gate: what a terminal and a client notice of the WebSocket between them."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, Frame, Opcode
from websockets.typing import Subprotocol

from penstock.core.config import BrokerSettings
from penstock.server import Broker, websocket
from penstock.server.listener import tls_context
from penstock.server.websocket import WebSocketGate
from penstock.server.websocket_transport import WebSocketTransport
from tests.server.test_broker import certificate
from tests.server.test_websocket_opening import request
from tests.terminals.toy import ToyTerminal

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
        self.strangers: set[WebSocketGate] = set()
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._gate, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for terminal in self.terminals:
            if terminal.made.is_set():
                terminal.transport.abort()
        for gate in list(self.strangers):
            gate.abort()
        await asyncio.gather(*(each.lost for each in self.terminals if each.made.is_set()))

    def _gate(self) -> WebSocketGate:
        terminal = Terminal()
        self.terminals.append(terminal)
        return WebSocketGate(
            terminal, SUBPROTOCOLS, PATHS, MAX_BYTES, self._timeout, self.strangers
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


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(timeout=30, tls=None).running() as running:
        yield running


def frame(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


async def closed(client: ClientConnection) -> tuple[int | None, str | None]:
    """What the client was told when the connection was closed."""
    with pytest.raises(ConnectionClosed):
        await client.recv()
    return client.close_code, client.close_reason


# Opening.


async def test_a_client_and_a_terminal_are_brought_together(server: Server) -> None:
    async with server.client() as client:
        assert client.subprotocol == "mqtt"
        await client.send(b"hello")
        assert await server.terminal.hear(5) == b"hello"
        server.terminal.transport.write(b"good day")
        assert await client.recv() == b"good day"


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/elsewhere", {}, 404),
        ("/ws", {"subprotocols": None}, 400),
        ("/ws", {"subprotocols": [Subprotocol("amqp")]}, 400),
    ],
)
async def test_a_client_that_is_refused_hears_why(
    server: Server, path: str, options: dict[str, Any], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await server.client(path, **options)

    assert refused.value.response.status_code == status
    assert refused.value.response.body
    assert not server.terminal.made.is_set()


async def test_a_refusal_ends_the_connection(server: Server) -> None:
    reader, writer = await server.raw(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")

    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_a_client_that_dawdles_is_dropped() -> None:
    async with Server(timeout=0.05, tls=None).running() as server:
        reader, writer = await server.raw(b"GET /ws HTTP/1.1\r\n")

        assert await reader.read() == b""
        assert not server.strangers
        writer.close()


async def test_a_gate_is_a_stranger_until_it_is_open(server: Server) -> None:
    reader, writer = await server.raw(request()[:-2])
    async with server.client():
        assert len(server.strangers) == 1

        writer.write(request()[-2:])
        await reader.readuntil(b"\r\n\r\n")

        assert not server.strangers
    writer.close()


async def test_frames_right_behind_the_request_are_not_lost(server: Server) -> None:
    reader, writer = await server.raw(request() + frame(Opcode.BINARY, b"early"))

    await reader.readuntil(b"\r\n\r\n")

    assert await server.terminal.hear(5) == b"early"
    writer.close()


# What passes.


async def test_each_write_is_one_frame(server: Server) -> None:
    async with server.client() as client:
        transport = server.terminal.transport
        transport.write(b"one")
        transport.write(b"")
        transport.writelines([b"two ", bytearray(b"and "), memoryview(b"three")])
        transport.write(bytes(70_000))

        assert await client.recv() == b"one"
        assert await client.recv() == b"two and three"
        assert await client.recv() == bytes(70_000)


async def test_the_frames_of_one_read_are_received_at_once(server: Server) -> None:
    _, writer = await server.raw()

    writer.write(
        b"".join(frame(Opcode.BINARY, part) for part in (b"a pack", b"et and a", b"nother"))
    )

    assert await server.terminal.heard.get() == b"a packet and another"
    writer.close()


async def test_a_message_in_fragments_is_received_as_it_comes(server: Server) -> None:
    async def fragments() -> AsyncIterator[bytes]:
        yield b"first"
        assert await server.terminal.hear(5) == b"first"
        yield b"second"

    async with server.client() as client:
        await client.send(fragments())
        assert await server.terminal.hear(6) == b"second"


async def test_a_ping_is_answered(server: Server) -> None:
    async with server.client() as client:
        answered = await client.ping(b"are you there?")
        await answered
        assert server.terminal.heard.empty()


async def test_the_terminal_knows_whom_it_talks_to(server: Server) -> None:
    async with server.client() as client:
        transport = server.terminal.transport

        assert transport.get_extra_info("peername") == client.local_address
        assert transport.get_extra_info("sockname") == client.remote_address
        assert transport.get_extra_info("ssl_object") is None
        assert transport.get_extra_info("websocket") == "mqtt"
        assert transport.get_extra_info("nonsense", "default") == "default"


async def test_over_tls_it_is_the_same(tmp_path: Path) -> None:
    settings = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(settings.certificate))
    body = bytes(range(256)) * 4096
    async with Server(timeout=30, tls=tls_context(settings)).running() as server:
        async with server.client(ssl=trusting) as client:
            assert server.terminal.transport.get_extra_info("ssl_object") is not None
            await client.send(body)
            server.terminal.transport.write(await server.terminal.hear(len(body)))
            assert await client.recv() == body
        assert await server.terminal.lost is None


async def test_over_tls_a_mistake_has_its_code_too(tmp_path: Path) -> None:
    settings = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(settings.certificate))
    async with Server(timeout=30, tls=tls_context(settings)).running() as server:
        async with server.client(ssl=trusting) as client:
            await client.send("text")
            assert await closed(client) == (1003, "only binary frames are taken")


# Pressure.


async def test_a_client_that_does_not_read_makes_the_terminal_wait(server: Server) -> None:
    reader, writer = await server.raw()
    transport, piece = server.terminal.transport, bytes(1 << 16)
    transport.set_write_buffer_limits(high=1 << 17)
    written = 0
    while not server.terminal.paused.is_set():
        transport.write(piece)
        written += 1
        await asyncio.sleep(0)
    assert transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]

    await reader.readexactly(written * (10 + len(piece)))

    await server.terminal.resumed.wait()
    assert transport.get_write_buffer_size() == 0
    writer.close()


async def test_a_terminal_that_does_not_read_makes_the_client_wait(server: Server) -> None:
    _, writer = await server.raw()
    terminal, piece = server.terminal, frame(Opcode.BINARY, bytes(1 << 16))
    terminal.transport.pause_reading()
    assert not terminal.transport.is_reading()
    written = 0
    while writer.transport.get_write_buffer_size() < 1 << 20:  # what the sockets do not take
        assert written < 1000
        writer.write(piece)
        written += 1
        await asyncio.sleep(0)
    assert terminal.heard.empty()

    terminal.transport.resume_reading()

    assert await terminal.hear(written << 16) == bytes(written << 16)
    writer.close()


async def test_pings_of_a_client_that_reads_nothing_fill_no_memory(server: Server) -> None:
    reader, writer = await server.raw()
    terminal = server.terminal
    terminal.transport.write(bytes(16 << 20))
    await terminal.paused.wait()
    before = terminal.transport.get_write_buffer_size()

    for number in range(1000):
        writer.write(frame(Opcode.PING, b"%d" % number))
    writer.write(frame(Opcode.BINARY, b"!"))
    await terminal.hear(1)

    assert terminal.transport.get_write_buffer_size() <= before
    await reader.readexactly((16 << 20) + 10)
    assert await reader.readexactly(5) == b"\x8a\x03999"
    writer.close()


async def test_how_much_is_read_at_a_time_is_the_sockets(server: Server) -> None:
    async with server.client() as client:
        terminal = server.terminal
        terminal.transport.max_size = 1024
        await client.send(bytes(10_000))
        assert len(await terminal.heard.get()) <= 1024
        assert terminal.transport.max_size == 1024


# The end.


async def test_a_client_that_closes_is_answered_and_lost(server: Server) -> None:
    async with server.client() as client:
        await client.send(b"bye")
        await client.close(1000, "done")

        assert (client.close_code, client.close_reason) == (1000, "")
        assert await server.terminal.lost is None
        assert await server.terminal.heard.get() == b"bye"
        assert server.terminal.ended


async def test_a_terminal_that_closes_has_its_last_word_heard(server: Server) -> None:
    async with server.client() as client:
        transport = server.terminal.transport
        transport.write(bytes(1 << 20))
        transport.write(b"disconnect")
        transport.close()
        transport.write(b"afterthought")
        assert transport.is_closing()

        assert await client.recv() == bytes(1 << 20)
        assert await client.recv() == b"disconnect"
        assert await closed(client) == (1000, "")
        assert await server.terminal.lost is None


async def test_a_terminal_that_has_closed_is_told_nothing_more(server: Server) -> None:
    reader, writer = await server.raw()
    server.terminal.transport.pause_reading()
    server.terminal.transport.close()
    assert await reader.readexactly(4) == b"\x88\x02\x03\xe8"

    writer.write(frame(Opcode.BINARY, b"late"))
    writer.write(frame(Opcode.CLOSE, Close(1000, "").serialize()))

    assert await reader.read() == b""
    assert await server.terminal.lost is None
    assert server.terminal.heard.empty()
    assert not server.terminal.ended
    writer.close()


async def test_a_client_that_does_not_answer_a_close_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_SECONDS", 0.01)
    reader, writer = await server.raw()

    server.terminal.transport.close()

    assert await server.terminal.lost is None
    assert await reader.read() == b"\x88\x02\x03\xe8"
    writer.close()


async def test_an_abort_is_one(server: Server) -> None:
    async with server.client() as client:
        server.terminal.transport.abort()
        assert server.terminal.transport.is_closing()
        assert await closed(client) == (1006, "")
        assert await server.terminal.lost is None


async def test_a_client_that_just_leaves_is_lost(server: Server) -> None:
    _, writer = await server.raw()

    writer.close()

    assert await server.terminal.lost is None
    assert server.terminal.ended


async def test_a_reset_is_passed_on(server: Server) -> None:
    _, writer = await server.raw()
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"

    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()

    assert isinstance(await server.terminal.lost, ConnectionResetError)


async def test_text_is_not_taken(server: Server) -> None:
    async with server.client() as client:
        await client.send("text")

        assert await closed(client) == (1003, "only binary frames are taken")
        assert await server.terminal.lost is None
        assert server.terminal.heard.empty()


async def test_a_frame_that_is_too_long_is_refused_before_it_has_come(server: Server) -> None:
    reader, writer = await server.raw()

    writer.write(b"\x82\xff" + (MAX_BYTES + 1).to_bytes(8, "big") + b"mask" + bytes(1000))

    assert (await reader.read())[2:4] == b"\x03\xf1"
    writer.close()
    assert await server.terminal.lost is None
    assert server.terminal.heard.empty()


async def test_what_came_before_a_mistake_is_received(server: Server) -> None:
    reader, writer = await server.raw()

    writer.write(frame(Opcode.BINARY, b"right") + frame(Opcode.TEXT, b"wrong"))

    assert (await reader.readexactly(4))[2:] == b"\x03\xeb"
    await reader.read()
    writer.close()
    assert await server.terminal.lost is None
    assert await server.terminal.heard.get() == b"right"


# Cost, and the whole.


class Socket(asyncio.Transport):
    """A transport that goes nowhere."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def test_an_open_gate_is_small() -> None:
    terminal = Terminal()
    count = 500

    def opened() -> WebSocketGate:
        gate = WebSocketGate(terminal, SUBPROTOCOLS, PATHS, MAX_BYTES, 30)
        gate.connection_made(Socket())
        gate.data_received(request(Cookie="x" * 4000))
        gate.data_received(frame(Opcode.BINARY, b"connect"))
        return gate

    warm = opened()
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        gates = [opened() for _ in range(count)]
        terminal.heard = asyncio.Queue()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert each < 1500
    for gate in (warm, *gates):
        gate.closing = True


async def test_a_terminal_of_the_broker_speaks_through_it(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        broker.vhosts["/"].declare_queue("jobs", durable=True)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketGate(ToyTerminal(broker), SUBPROTOCOLS, PATHS, MAX_BYTES, 30),
            "127.0.0.1",
            0,
        )
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/ws", subprotocols=[MQTT]) as client:
            await client.send(b"PUB /exchange//jobs tidy ")
            await client.send(b"up\nSUB /queue/jobs\n")
            heard = b""
            while heard.count(b"\n") < 3:
                heard += cast(bytes, await client.recv())
        server.close()
    assert sorted(heard.splitlines()) == [b"MSG 2 tidy up", b"OK", b"OK"]
