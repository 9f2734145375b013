"""Connections through HTTP and SOCKS5 proxies, and who needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock_pump.errors import SourceUnavailable
from penstock_pump.transports.proxy import ProxyRule
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    TransportContext,
    TransportRegistry,
)
from tests.pump.servers import LOOPBACK, serving
from tests.pump.test_transports import Caught, ftpd


class Proxy:
    """Speaks HTTP's CONNECT or SOCKS5 with a password, and counts connections."""

    def __init__(self, *, socks: bool) -> None:
        self.socks = socks
        self.asked: list[str] = []
        self.refuses = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = await (self._socks if self.socks else self._http)(reader, writer)
        if host:
            self.asked.append(host)
            there, back = await asyncio.open_connection(host, port)
            await asyncio.gather(_pipe(reader, back), _pipe(there, writer))
        writer.close()

    async def _http(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in head
        writer.write(f"HTTP/1.1 {'403 No' if self.refuses else '200 OK'}\r\n\r\n".encode())
        host, _, port = head.split()[1].rpartition(":")
        return ("" if self.refuses else host), int(port)

    async def _socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        assert await reader.readexactly(4) == b"\x05\x02\x00\x02"
        writer.write(b"\x05\x02")
        assert await reader.readexactly(11) == b"\x01\x02me\x06secret"
        writer.write(b"\x01" + (b"\x01" if self.refuses else b"\x00"))
        if self.refuses:
            return "", 0
        assert await reader.readexactly(4) == b"\x05\x01\x00\x01"
        address = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        return address, port


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


@asynccontextmanager
async def proxy(*, socks: bool) -> AsyncIterator[tuple[Proxy, str]]:
    found = Proxy(socks=socks)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield found, f"{'socks5' if socks else 'http'}://me:secret@127.0.0.1:{port}"
    finally:
        server.close()


@pytest.mark.parametrize("socks", [False, True], ids=["http", "socks5"])
@pytest.mark.parametrize("scheme", ["http", "ftp"])
async def test_files_through_a_proxy(scheme: str, socks: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")
    async with proxy(socks=socks) as (found, url), ftpd(tmp_path) as ftp:
        with serving(tmp_path) as server:
            there = server.url if scheme == "http" else ftp.url
            transports = TransportRegistry(
                TransportContext(ftp.credentials, LOOPBACK, 5.0, proxy=ProxyRule(url))
            )
            caught = Caught()
            source = FileSource(there + "f")
            await transports.get(scheme).fetch(source, ByteRange(), caught)
            assert bytes(caught.data) == b"content"
            assert found.asked
            assert set(found.asked) == {"127.0.0.1"}
            await transports.close()
            found.refuses = True
            with pytest.raises(SourceUnavailable, match="proxy"):
                await transports.get(scheme).fetch(source, ByteRange(), Caught())
            await transports.close()


@pytest.mark.parametrize(
    ("environment", "setting", "scheme", "host", "found"),
    [
        ({}, None, "http", "h", None),
        ({"http_proxy": "http://p:1"}, None, "http", "h", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, None, "https", "h", "http://p:1"),
        ({"http_proxy": "http://p:1"}, None, "https", "h", None),
        ({"all_proxy": "socks5://p"}, None, "sftp", "h", "socks5://p"),
        ({"all_proxy": "socks5://p", "no_proxy": ".a.org,h"}, None, "sftp", "x.a.org", None),
        ({"all_proxy": "socks5://p", "no_proxy": ".a.org,h"}, None, "sftp", "a.orgs", "socks5://p"),
        ({"http_proxy": "http://p:1"}, "none", "http", "h", None),
        ({"http_proxy": "http://p:1"}, "socks5://q", "http", "h", "socks5://q"),
    ],
)
def test_which_proxy(
    environment: dict[str, str], setting: str | None, scheme: str, host: str, found: str | None
) -> None:
    assert ProxyRule(setting, environment).proxy_for(scheme, host) == found
