"""FTP over TLS, both ways: asked for after the greeting (AUTH TLS), and from the first byte.

The words that ask for it are those of Sarracenia's `credentials.conf`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aioftp
import pytest

from penstock_pump.credentials import parse_credentials
from penstock_pump.errors import SourceUnavailable
from penstock_pump.transports import ftp as ftp_transport
from penstock_pump.transports.access import HostRule
from penstock_pump.transports.transport import (
    ByteRange,
    FileSource,
    FileUpload,
    Transport,
    TransportContext,
    TransportRegistry,
)
from tests.pump.servers import EVERY_FILE
from tests.pump.test_addresses import NAME, Checked, folder_of_one, write_certificate
from tests.pump.test_transports import DATA, Caught


class Explicit(aioftp.Server):
    """Begins in the clear, and lets nobody in, nor any data pass, until it does not."""

    def __init__(self, user: aioftp.User, context: ssl.SSLContext) -> None:
        super().__init__([user])
        self._context = context
        self.said: list[str] = []
        self.commands_mapping |= {
            "auth": self._auth,
            "pbsz": self._pbsz,
            "prot": self._prot,
            "user": self._user,
        }

    async def open(self) -> int:
        await self.start("127.0.0.1")
        self.ssl = self._context  # of data connections
        return self.server_port

    async def _auth(self, connection: Any, rest: Any) -> bool:
        self.said.append(f"AUTH {rest}")
        stream = connection.command_connection
        await self.write_response(stream, "234", "go on")
        await stream.start_tls(self._context, None)
        return True

    async def _pbsz(self, connection: Any, rest: Any) -> bool:
        connection.response("200", "")
        return True

    async def _prot(self, connection: Any, rest: Any) -> bool:
        self.said.append(f"PROT {rest}")
        connection.response("200", "")
        return True

    async def _user(self, connection: Any, rest: Any) -> bool:
        if connection.command_connection.writer.get_extra_info("ssl_object") is None:
            connection.response("530", "not in the clear")
            return True
        return await self.user(connection, rest)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's, whose certificate is trusted here."""
    certificate = write_certificate(tmp_path, NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_one(tmp_path)


@pytest.fixture
async def explicit(context: ssl.SSLContext, folder: Path) -> AsyncIterator[Explicit]:
    server = Explicit(aioftp.User("me", "secret", base_path=folder), context)
    await server.open()
    yield server
    await server.close()


@asynccontextmanager
async def reaching(
    url: str, words: str = "", hosts: HostRule | None = None
) -> AsyncIterator[Transport]:
    known = parse_credentials([f"{url.replace('me@', 'me:secret@')} {words}"], "test")
    transports = TransportRegistry(TransportContext(known, hosts or Checked(), 60.0))
    try:
        yield transports.get(url.partition(":")[0])
    finally:
        await transports.close()


async def goes_both_ways(transport: Transport, url: str, folder: Path, place: Path) -> None:
    caught = Caught()
    await transport.fetch(FileSource(url + "a%20b"), ByteRange(), caught)
    assert bytes(caught.data) == DATA
    part = Caught()
    await transport.fetch(FileSource(url + "a%20b"), ByteRange(100_000, 50_001), part)
    assert bytes(part.data) == DATA[100_000:150_001]

    ours = place / "ours"
    ours.write_bytes(DATA)
    await transport.send(FileUpload(ours, ".tmp", files=EVERY_FILE), FileSource(url + "new/c"))
    assert (folder / "new/c").read_bytes() == DATA
    await transport.remove(FileSource(url + "new/c"))
    assert not (folder / "new/c").exists()


@pytest.mark.parametrize(
    ("scheme", "words"), [("ftp", "tls,prot_p"), ("ftp", "tls"), ("ftps", "tls"), ("ftps", "")]
)
async def test_tls_that_is_asked_for(
    explicit: Explicit, folder: Path, tmp_path: Path, scheme: str, words: str
) -> None:
    url = f"{scheme}://me@{NAME}:{explicit.server_port}/"
    async with reaching(url, words) as transport:
        await goes_both_ways(transport, url, folder, tmp_path)
    assert set(explicit.said) == {"AUTH TLS", "PROT P"}


async def test_without_tls_a_server_that_demands_it_is_of_no_use(explicit: Explicit) -> None:
    url = f"ftp://me@{NAME}:{explicit.server_port}/"
    async with reaching(url) as transport:
        with pytest.raises(SourceUnavailable, match="530"):
            await transport.fetch(FileSource(url + "a%20b"), ByteRange(), Caught())


async def test_a_certificate_of_another_is_no_certificate(explicit: Explicit) -> None:
    """It is of a name; here the server is reached by its address."""
    url = f"ftp://me@127.0.0.1:{explicit.server_port}/"
    async with reaching(url, "tls") as transport:
        with pytest.raises(SourceUnavailable, match="certificate"):
            await transport.fetch(FileSource(url + "a%20b"), ByteRange(), Caught())
    assert explicit.said == ["AUTH TLS"]


@pytest.mark.parametrize("scheme", ["ftp", "ftps"])
async def test_tls_from_the_first_byte(
    context: ssl.SSLContext, folder: Path, tmp_path: Path, scheme: str
) -> None:
    server = aioftp.Server([aioftp.User("me", "secret", base_path=folder)], ssl=context)
    await server.start("127.0.0.1")
    try:
        url = f"{scheme}://me@{NAME}:{server.server_port}/"
        async with reaching(url, "implicit_ftps") as transport:
            await goes_both_ways(transport, url, folder, tmp_path)
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("scheme", "words", "port"),
    [
        ("ftp", "", 21),
        ("ftp", "tls", 21),
        ("ftp", "implicit_ftps", 990),
        ("ftps", "", 990),
        ("ftps", "tls,prot_p", 21),
    ],
)
def test_the_port_where_none_is_said(scheme: str, words: str, port: int) -> None:
    url = f"{scheme}://me@{NAME}/"
    known = parse_credentials([f"{url} {words}"], "test").find(url)
    assert ftp_transport.port_of(FileSource(url), known) == port
