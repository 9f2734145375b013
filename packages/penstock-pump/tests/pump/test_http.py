"""HTTP as servers speak it, good and bad: what is whole is taken, and nothing else is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.errors import SourceUnavailable, UnsupportedSource
from penstock_pump.transports.access import HostRule
from penstock_pump.transports.http import HttpTransport
from penstock_pump.transports.http_client import build_request
from penstock_pump.transports.transport import ByteRange, FileSource, FileUpload, TransportContext
from tests.pump.servers import EVERY_FILE, LOOPBACK
from tests.pump.test_transports import Caught

OK = b"HTTP/1.1 200 OK\r\n"


class Scripted:
    """A server that answers with given bytes, one answer a request; None closes instead. With
    `closing` it closes after each."""

    def __init__(self, *answers: bytes | None, closing: bool = False) -> None:
        self._answers = list(answers)
        self._closing = closing
        self.connections = 0
        self.heard = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                await reader.readuntil(b"\r\n\r\n")
                self.heard.set()
                answer = self._answers.pop(0)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if self._closing:
                    return
            await reader.read()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*answers: bytes | None, closing: bool = False) -> AsyncIterator[Scripted]:
    script = Scripted(*answers, closing=closing)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield script
    finally:
        server.close()


@pytest.fixture
async def http() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(TransportContext(hosts=LOOPBACK, timeout=30.0))
    yield transport
    await transport.close()


async def fetched(http: HttpTransport, script: Scripted) -> bytes:
    caught = Caught()
    await http.fetch(FileSource(script.url + "f"), ByteRange(), caught)
    return bytes(caught.data)


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 4\r\n\r\ndata",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nd\r\n3;x=y\r\nata\r\n0\r\n\r\n",
        OK + b"\r\ndata",
        b"HTTP/1.0 200 OK\r\n\r\ndata",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"content-length:4\r\n\r\ndata",
    ],
    ids=["length", "chunks", "to the end", "1.0", "behind an early one"],
)
async def test_a_whole_answer_however_its_end_is_told(answer: bytes, http: HttpTransport) -> None:
    async with scripted(answer, closing=True) as script:
        assert await fetched(http, script) == b"data"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"220 mail.example.org ESMTP\r\n",
        OK,
        OK + b"Content-Length: 5\r\n\r\ndata",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n",
        OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n",
        OK + b"X: " + b"x" * 100_000,
    ],
    ids=["nothing", "no HTTP", "half a head", "too little", "no last chunk", "two ends", "long"],
)
async def test_what_breaks_off_or_makes_no_sense_is_an_error(
    answer: bytes | None, http: HttpTransport
) -> None:
    async with scripted(answer, closing=True) as script:
        with pytest.raises(SourceUnavailable):
            await fetched(http, script)


async def test_a_connection_is_used_again(http: HttpTransport) -> None:
    answer = OK + b"Content-Length: 4\r\n\r\ndata"
    async with scripted(*[answer] * 5) as script:
        for _ in range(5):
            assert await fetched(http, script) == b"data"
    assert script.connections == 1


async def test_a_server_that_closes_a_kept_connection_is_asked_anew(http: HttpTransport) -> None:
    answer = OK + b"Content-Length: 4\r\n\r\ndata"
    async with scripted(answer, None, answer) as script:
        assert await fetched(http, script) == b"data"
        assert await fetched(http, script) == b"data"
    assert script.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 4\r\n\r\ndataHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        OK + b"Content-Length: 4\r\n\r\ndatabehind",
        OK + b"Content-Length: 4\r\nConnection: close\r\n\r\ndata",
    ],
    ids=["an answer nobody asked for", "rubbish", "close"],
)
async def test_what_is_behind_an_answer_is_never_taken_for_the_next(
    answer: bytes, http: HttpTransport
) -> None:
    async with scripted(answer, OK + b"Content-Length: 4\r\n\r\nnext") as script:
        assert await fetched(http, script) == b"data"
        assert await fetched(http, script) == b"next"
    assert script.connections == 2


async def test_a_large_answer_waits_until_it_is_taken(http: HttpTransport) -> None:
    size = 8 << 20
    let = asyncio.Event()

    class Slow(Caught):
        async def feed(self, data: bytes) -> None:
            await let.wait()
            await super().feed(data)

    slow = Slow()
    answer = OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    async with scripted(answer) as script:
        downloader = asyncio.create_task(
            http.fetch(FileSource(script.url + "f"), ByteRange(), slow)
        )
        await script.heard.wait()
        let.set()
        await downloader
    assert len(slow.data) == size


async def test_a_refusal_while_a_file_is_sent_is_told(http: HttpTransport, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    async with scripted(b"HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n") as script:
        with pytest.raises(SourceUnavailable, match="507"):
            await http.send(FileUpload(path, "", files=EVERY_FILE), FileSource(script.url + "f"))


@given(st.text(), st.text())
def test_no_url_writes_a_line_of_its_own(path: str, query: str) -> None:
    try:
        head = build_request("GET", f"http://host/{path}?{query}", {"Range": "bytes=0-"}).head
    except UnsupportedSource:
        return
    lines = head.split(b"\r\n")
    assert re.fullmatch(rb"GET /[!-~]* HTTP/1\.1", lines[0])
    assert lines[1:] == [b"Host: host", b"Range: bytes=0-", b"", b""]


@pytest.mark.parametrize(
    "url", ["http:///f", "http://a b/f", "http://a\r\nX: y/f", "http://h:99999/f", "http://[::1/f"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedSource):
        build_request("GET", url, {})


def test_a_secret_cannot_write_a_line_of_its_own() -> None:
    with pytest.raises(UnsupportedSource):
        build_request("GET", "http://h/", {"Authorization": "Bearer x\r\nX: y"})


async def test_a_name_is_connected_to_by_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()

    async def resolved(host: str, port: object, **_: object) -> list[object]:
        return [(2, 1, 6, "", ("93.184.216.34", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert await HostRule(private=False).check("name.example") == "93.184.216.34"
    assert await HostRule(private=True).check("name.example") == "name.example"
