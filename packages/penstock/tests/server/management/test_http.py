"""The connection itself: what a client may do to HTTP, and what the broker makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from penstock.broker.contract import Message
from penstock.core.addresses import parse_address
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.config import BrokerSettings, TlsSettings
from penstock.server import Broker
from tests.client.test_tls import write_certificate

GUEST = "Host: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"


class Wire:
    """A plain connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, text: str) -> None:
        self.writer.write(text.encode())

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rest)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(line.split()[1]), headers, body

    async def closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 60) == b""


@pytest.fixture
async def wire(served: Broker) -> AsyncIterator[Wire]:
    address = parse_address(served.addresses[1])
    opened = Wire(*await asyncio.open_connection(address.host, address.port))
    yield opened
    opened.writer.close()


async def test_a_connection_serves_many_requests(wire: Wire) -> None:
    for _ in range(3):
        wire.send(f"GET /api/whoami HTTP/1.1\r\n{GUEST}\r\n")
        status, _, body = await wire.answer()
        assert (status, json.loads(body)["name"]) == (200, "guest")


async def test_a_status_line_has_its_reason_phrase(wire: Wire) -> None:
    for path, line in (("whoami", b"200 OK"), ("none", b"404 Not Found")):
        wire.send(f"GET /api/{path} HTTP/1.1\r\n{GUEST}\r\n")
        assert await wire.reader.readline() == b"HTTP/1.1 " + line + b"\r\n"
        head = await wire.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await wire.reader.readexactly(int(length[1]))

    wire.send("no HTTP at all\r\n\r\n")
    assert await wire.reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"


async def test_requests_sent_together_are_answered_in_order(wire: Wire) -> None:
    paths = ["whoami", "cluster-name", "none", "whoami"]
    wire.send("".join(f"GET /api/{path} HTTP/1.1\r\n{GUEST}\r\n" for path in paths))

    assert [(await wire.answer())[0] for _ in paths] == [200, 200, 404, 200]


async def test_a_body_may_come_in_chunks(wire: Wire) -> None:
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in ('{"dur', 'able":', "true}"))
    wire.send(f"PUT /api/queues/%2F/q HTTP/1.1\r\n{GUEST}Transfer-Encoding: chunked\r\n\r\n")
    wire.send(f"{chunks}0\r\n\r\n")

    assert (await wire.answer())[0] == 201


async def test_a_client_may_wait_to_be_asked_for_the_body(wire: Wire) -> None:
    expect = "Expect: 100-continue\r\nContent-Length: 2\r\n"
    wire.send(f"PUT /api/queues/%2F/q HTTP/1.1\r\n{GUEST}{expect}\r\n")
    assert (await wire.answer())[0] == 100

    wire.send("{}")
    assert (await wire.answer())[0] == 201


async def test_a_stranger_is_refused_before_the_body_comes(wire: Wire) -> None:
    wire.send(
        "POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n{"
    )

    status, headers, _ = await wire.answer()

    assert (status, headers["connection"]) == (401, "close")
    assert await wire.closed()


async def test_a_body_that_is_too_large_is_refused(wire: Wire) -> None:
    size = 17 << 20
    wire.send(f"PUT /api/queues/%2F/q HTTP/1.1\r\n{GUEST}Content-Length: {size}\r\n\r\n")
    sending = asyncio.create_task(_pour(wire, size))

    status, _, body = await wire.answer()

    assert (status, json.loads(body)["error"]) == (413, "content_too_large")
    sending.cancel()


async def _pour(wire: Wire, size: int) -> None:
    for _ in range(size // 65536):
        wire.writer.write(b" " * 65536)
        await wire.writer.drain()


@pytest.mark.parametrize(
    "words",
    [
        "hello\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",  # no host
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "AMQP\x00\x00\x09\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + "x" * 40_000 + "\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_told_so_and_closed(wire: Wire, words: str) -> None:
    wire.send(words)

    assert (await wire.answer())[0] in (400, 431)
    assert await wire.closed()


async def test_head_is_get_without_the_body(wire: Wire) -> None:
    wire.send(f"HEAD /api/whoami HTTP/1.1\r\n{GUEST}\r\nGET /api/whoami HTTP/1.1\r\n{GUEST}\r\n")

    head = (await wire.reader.readuntil(b"\r\n\r\n")).decode()
    status, headers, _ = await wire.answer()

    assert head.startswith("HTTP/1.1 200")
    assert status == 200
    assert f"content-length: {headers['content-length']}" in head.lower()


async def test_the_methods_of_a_path_are_known(wire: Wire) -> None:
    wire.send(f"OPTIONS /api/vhosts/x HTTP/1.1\r\n{GUEST}\r\n")
    wire.send(f"PATCH /api/vhosts/x HTTP/1.1\r\n{GUEST}\r\n")

    asked, refused = await wire.answer(), await wire.answer()

    assert (asked[0], refused[0]) == (200, 405)
    assert asked[1]["allow"] == refused[1]["allow"] == "HEAD, GET, PUT, DELETE, OPTIONS"


async def test_an_old_client_gets_an_answer_and_the_end(wire: Wire) -> None:
    wire.send(f"GET /metrics/detailed HTTP/1.0\r\n{GUEST}\r\n")

    head, _, body = (await wire.reader.read()).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200")
    assert body.startswith(b"# HELP")


async def test_half_a_request_does_not_hold_up_the_end(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        address = parse_address(broker.addresses[0])
        idle = Wire(*await asyncio.open_connection(address.host, address.port))
        half = Wire(*await asyncio.open_connection(address.host, address.port))
        half.send(f"PUT /api/queues/%2F/q HTTP/1.1\r\n{GUEST}Content-Length: 10\r\n\r\n{{")
        idle.send(f"GET /api/whoami HTTP/1.1\r\n{GUEST}\r\n")
        await idle.answer()

    assert await idle.closed()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await half.answer()
    idle.writer.close()
    half.writer.close()


async def test_https_is_http_over_tls(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    tls = TlsSettings(certificate=certificate, key=key)
    settings = BrokerSettings(listen=["https://127.0.0.1:0"], tls=tls)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async with (
        Broker(settings, data=tmp_path / "data") as broker,
        httpx.AsyncClient(base_url=broker.addresses[0], verify=trusting, timeout=60) as client,
    ):
        answer = await client.get("/api/whoami", auth=("guest", "guest"))

    assert broker.addresses[0].startswith("https://127.0.0.1:")
    assert answer.json()["name"] == "guest"


async def test_a_reader_that_does_not_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        vhost = broker.vhosts["/"]
        stream = vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
        body = b"x" * 65536
        message = Message(encode_route("", "s"), encode_header(BasicProperties(), len(body)), body)
        for _ in range(256):
            stream.push(message)
        broker.kernel.write_batch.flush()
        safe = broker.kernel.loop.create_future()
        broker.kernel.committer.after(lambda: safe.set_result(None))
        await safe
        address = parse_address(broker.addresses[0])
        slow = Wire(*await asyncio.open_connection(address.host, address.port, limit=1024))
        slow.send(f"GET /api/streams/s?from=0 HTTP/1.1\r\n{GUEST}\r\n")
        await slow.reader.readline()

    end = b""
    with contextlib.suppress(ConnectionError):
        while part := await slow.reader.read(65536):
            end = (end + part)[-5:]
    assert end != b"0\r\n\r\n", "a client can tell that the answer is not whole"
    slow.writer.close()
