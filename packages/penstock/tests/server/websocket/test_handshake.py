"""The gate opens: who is brought together with a terminal, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Opcode
from websockets.typing import Subprotocol

from tests.server.websocket.connections import Server, frame
from tests.server.websocket.test_request import request


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
        assert not server.handshaking
        writer.close()


async def test_a_gate_is_a_stranger_until_it_is_open(server: Server) -> None:
    reader, writer = await server.raw(request()[:-2])
    async with server.client():
        assert len(server.handshaking) == 1

        writer.write(request()[-2:])
        await reader.readuntil(b"\r\n\r\n")

        assert not server.handshaking
    writer.close()


async def test_frames_right_behind_the_request_are_not_lost(server: Server) -> None:
    reader, writer = await server.raw(request() + frame(Opcode.BINARY, b"early"))

    await reader.readuntil(b"\r\n\r\n")

    assert await server.terminal.hear(5) == b"early"
    writer.close()
