"""Applications that a command serves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import FastAPI

from penstock_store.http.server import serve_app
from penstock_store.http.timeouts import MAX_HEADER_BYTES


async def test_the_head_of_a_request_is_limited() -> None:
    async with serve_app(FastAPI(), "127.0.0.1", 0) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        reading = asyncio.create_task(reader.read())
        writer.write(b"GET / HTTP/1.1\r\nX-Long: ")
        with suppress(ConnectionError):
            for _ in range(16):
                writer.write(MAX_HEADER_BYTES * b"x")
                await writer.drain()
        with suppress(ConnectionError):
            assert b" 200 " not in await reading
        writer.close()
