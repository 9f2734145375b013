"""How a gate closes, and who is told what."""

from __future__ import annotations

import socket

import pytest
from websockets.frames import Close, Opcode

from penstock.server import websocket
from tests.server.websocket.connections import MAX_BYTES, Server, closed, frame


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

        assert await closed(client) == (1003, "only binary frames are supported")
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
