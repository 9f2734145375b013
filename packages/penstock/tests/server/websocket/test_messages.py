"""An open gate: what passes, how much at a time, and who waits for whom."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from websockets.frames import Opcode

from penstock.server.listener import tls_context
from tests.server.test_broker import certificate
from tests.server.websocket.connections import Server, closed, frame


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
            assert await closed(client) == (1003, "only binary frames are supported")


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
