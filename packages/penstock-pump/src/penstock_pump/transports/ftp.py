"""FTP and FTPS with aioftp: a connection for each transfer, since FTP does one at a time.

`tls` of the credentials, or the scheme ftps, upgrades to TLS after the greeting; `implicit_ftps`,
or ftps on port 990, starts with TLS. The data connection is then encrypted too, with or without
`prot_p`. All connections of a transfer go to one address: where hosts are checked, the checked one.
Data connections are always passive and binary.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aioftp

from penstock.core.units import KiB
from penstock_pump.credentials import PumpCredential
from penstock_pump.errors import SourceMissing, SourceUnavailable
from penstock_pump.transports.listing import ListedFile
from penstock_pump.transports.proxy import open_through_proxy
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
    WholeFilesOnly,
)

CHUNK: Final = 256 * KiB
IMPLICIT_PORT: Final = 990
_MISSING: Final = "550"


class _Client(aioftp.Client):
    """Connects to a given address instead of resolving the host name; TLS checks the name."""

    def __init__(self, address: str, proxy: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._address = address
        self._proxy = proxy

    async def _open_connection(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        stream = self._stream
        secured = self.ssl or (stream and stream.writer.get_extra_info("ssl_object"))
        if self._proxy is not None:
            timeout = self.connection_timeout or 30.0
            sock = await open_through_proxy(self._proxy, host, port, timeout)
            name = self.server_host if self.ssl else None
            return await asyncio.open_connection(sock=sock, ssl=self.ssl, server_hostname=name)
        self._siosocks_asyncio_kwargs = {"server_hostname": self.server_host} if secured else {}
        return await super()._open_connection(self._address, port)


class FtpTransport(WholeFilesOnly):
    def __init__(self, context: TransportContext) -> None:
        self._context = context
        self._connections = asyncio.Semaphore(context.connections)
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        async with self._client(source) as client:
            left = span.length
            stream = await client.download_stream(source.path, offset=span.offset)
            try:
                while left is None or left > 0:
                    data = await stream.read(CHUNK if left is None else min(CHUNK, left))
                    if not data:
                        break
                    await sink.feed(data)
                    left = None if left is None else left - len(data)
                if left is None:
                    await stream.finish()
            finally:
                stream.close()

    async def send(self, upload: FileUpload, target: FileSource) -> None:
        temporary = target.path + (upload.inflight or ".tmp")
        async with self._client(target) as client:
            folder = target.path.rpartition("/")[0]
            if folder:
                await client.make_directory(folder)
            try:
                with await asyncio.to_thread(FileRangeReader, upload) as file_range:
                    async with client.upload_stream(temporary) as stream:
                        while data := await asyncio.to_thread(file_range.read):
                            await stream.write(data)
                await self._rename(client, temporary, target.path)
            except aioftp.StatusCodeError:
                with suppress(aioftp.StatusCodeError):
                    await client.remove_file(temporary)
                raise

    async def _rename(self, client: aioftp.Client, temporary: str, path: str) -> None:
        try:
            await client.rename(temporary, path)
        except aioftp.StatusCodeError:  # some servers replace nothing
            await client.remove_file(path)
            await client.rename(temporary, path)

    async def remove(self, target: FileSource) -> None:
        try:
            async with self._client(target) as client:
                await client.remove_file(target.path)
        except SourceMissing:
            return

    async def list(self, source: FileSource) -> list[ListedFile]:
        async with self._client(source) as client:
            found = await client.list(source.path or "/")
        return [
            ListedFile(
                path.name,
                info.get("type") == "dir",
                int(info["size"]),
                self._modified(info.get("modify")),
            )
            for path, info in found
            if path.name not in (".", "..")
        ]

    def _modified(self, text: str | None) -> int | None:
        """MLSD tells UTC; the time of a plain listing is in the server's time zone, and aioftp
        writes both the same way."""
        try:
            at = datetime.strptime(f"{text}+0000", "%Y%m%d%H%M%S%z")
        except ValueError:
            return None
        return int(at.replace(tzinfo=self._context.zone).timestamp()) * 10**9

    async def make_directory(self, target: FileSource, mode: int | None) -> None:
        async with self._client(target) as client:
            await client.make_directory(target.path)

    async def remove_directory(self, target: FileSource) -> None:
        with suppress(SourceMissing):
            async with self._client(target) as client:
                await client.remove_directory(target.path)

    async def close(self) -> None:
        return

    @asynccontextmanager
    async def _client(self, source: FileSource) -> AsyncIterator[aioftp.Client]:
        timeout = self._context.timeout
        found = self._context.credentials.find(source.url)
        port = port_of(source, found)
        implicit = found.implicit or (source.scheme == "ftps" and port == IMPLICIT_PORT)
        secured = implicit or found.tls or source.scheme == "ftps"
        proxy = self._context.proxy.proxy_for("ftp", source.host)
        address = source.host if proxy else await self._context.hosts.check(source.host)
        tls = await self._tls_context() if secured else None
        async with self._connections:
            client = _Client(
                address,
                proxy,
                socket_timeout=timeout,
                connection_timeout=min(30.0, timeout),
                ssl=tls if implicit else None,
            )
            try:
                await client.connect(source.host, port)
                if secured and not implicit:
                    await client.upgrade_to_tls(tls)
                user = found.user or aioftp.DEFAULT_USER
                await client.login(user, found.password or aioftp.DEFAULT_PASSWORD)
                yield client
            except aioftp.StatusCodeError as error:
                codes = " ".join(map(str, error.received_codes))
                if codes == _MISSING:
                    raise SourceMissing(f"{source.host} has no file {source.path}") from error
                raise SourceUnavailable(f"{source.host}: {codes} {error.info}") from error
            except (OSError, TimeoutError, aioftp.AIOFTPException) as error:
                reason = str(error) or type(error).__name__
                raise SourceUnavailable(f"{source.host}: {reason}") from error
            finally:
                client.close()

    async def _tls_context(self) -> ssl.SSLContext:
        """Created once: to load the trusted certificates takes longer than a small file."""
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


def port_of(source: FileSource, known: PumpCredential) -> int:
    if port := urlsplit(source.url).port:
        return port
    implicit = known.implicit or (source.scheme == "ftps" and not known.tls)
    return IMPLICIT_PORT if implicit else aioftp.DEFAULT_PORT
