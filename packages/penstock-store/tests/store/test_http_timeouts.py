"""Requests that come slowly, or never, do not keep their connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock_store.http.timeouts import MAX_HEADER_BYTES, RequestTimeouts, TimeoutHttpProtocol

#: For what a busy machine may take.
PATIENCE = 60.0
#: So short that a test does not notice, and so long that no test waits for it.
SHORT, LONG = 0.05, 3600.0


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the size of the body; `/early` before it has come."""
    assert scope["type"] == "http"
    size = 0
    while scope["path"] != "/early":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = str(size).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """One whole answer, the connection still open."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return head + await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """All there is until the server closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def served(timeouts: RequestTimeouts) -> AsyncIterator[Any]:
    loop = asyncio.get_running_loop()
    config = Config(echo, http=TimeoutHttpProtocol, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    server = await loop.create_server(
        lambda: TimeoutHttpProtocol(config, state, {}, timeouts=timeouts), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return Client(reader, writer)

    try:
        yield connect
    finally:
        for writer in opened:
            writer.close()
        server.close()


async def test_a_client_that_says_nothing_is_closed() -> None:
    async with served(RequestTimeouts(head=SHORT)) as connect:
        assert await (await connect()).rest() == b""


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nHost: here\r\nX-Slow: "])
async def test_half_a_head_is_refused(begun: bytes) -> None:
    async with served(RequestTimeouts(head=SHORT)) as connect:
        client = await connect()
        client.send(begun)
        assert b" 408 " in await client.rest()


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\n", b"\r\n"])
async def test_so_is_half_of_the_next_request(begun: bytes) -> None:
    async with served(RequestTimeouts(head=SHORT)) as connect:
        client = await connect()
        client.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert b" 200 " in await client.answer()
        client.send(begun)
        assert b" 408 " in await client.rest()


async def test_half_a_body_is_refused() -> None:
    async with served(RequestTimeouts(body=SHORT, rate=1_000_000)) as connect:
        client = await connect()
        client.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf")
        assert b" 408 " in await client.rest()


async def test_a_body_that_is_never_finished_ends_the_connection_of_an_early_answer() -> None:
    async with served(RequestTimeouts(body=SHORT, rate=1_000_000)) as connect:
        client = await connect()
        client.send(b"POST /early HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf")
        assert b" 200 " in await client.answer()
        assert b" 200 " not in await client.rest()


async def test_a_body_that_comes_at_the_rate_has_its_time() -> None:
    async with served(RequestTimeouts(body=SHORT, rate=1)) as connect:
        first, second = await connect(), await connect()
        first.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3601\r\n\r\n" + 3600 * b"x")
        second.send(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
        assert b" 408 " in await second.rest()  # the time of both is over, but for the rate
        first.send(b"x")
        assert (await first.answer()).endswith(b"3601")


async def test_an_idle_connection_is_not_a_slow_one() -> None:
    async with served(RequestTimeouts(head=SHORT)) as connect:
        idle = await connect()
        idle.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await idle.answer()
        assert await (await connect()).rest() == b""  # in the meantime
        idle.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert b" 200 " in await idle.answer()


@pytest.mark.parametrize(
    "framing", [b"X-Long: ", b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Long: "]
)
async def test_headers_without_end_are_refused(framing: bytes) -> None:
    async with served(RequestTimeouts(head=LONG, body=LONG)) as connect:
        client = await connect()
        client.send(b"POST / HTTP/1.1\r\nHost: here\r\n" + framing)
        reading = asyncio.create_task(client.rest())
        try:
            for _ in range(16):
                client.send(MAX_HEADER_BYTES * b"x")
                await client.writer.drain()
        except ConnectionError:
            pass  # it was closed already
        assert b" 200 " not in await reading


async def test_requests_in_one_read_are_answered_in_turn() -> None:
    async with served(RequestTimeouts(head=SHORT, body=SHORT)) as connect:
        client = await connect()
        request = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nab"
        client.send(3 * request)
        for _ in range(3):
            assert (await client.answer()).endswith(b"2")
