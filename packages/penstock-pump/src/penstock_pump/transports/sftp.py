"""SFTP, by asyncssh: a connection for each server, kept while it is used.

Keys, known hosts and aliases are those of the user's own ssh settings, unless the credentials name
a key file or have a password. Where hosts are checked, the address that was found allowed is the
one that is connected to, and its key is looked for under the host's name.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import asyncssh

from penstock.core.units import MiB
from penstock_pump.errors import PumpError, SourceMissing, SourceUnavailable
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
)

#: asyncssh asks for a stretch of this size in pieces, all at the same time.
CHUNK: Final = MiB
_PORT: Final = 22


class SftpTransport:
    """Keeps `Transport`."""

    def __init__(self, transport_context: TransportContext) -> None:
        self._transport_context = transport_context
        self._opening: dict[str, asyncio.Lock] = {}
        self._clients: dict[str, tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]] = {}

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        try:
            client = await self._client(source)
            async with client.open(source.path, "rb") as file:
                await self._read(file, span, sink)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(source, error) from error

    async def send(self, delivery: FileUpload, target: FileSource) -> None:
        path = target.path
        draft = path + (delivery.inflight or ".tmp")
        client = None
        try:
            client = await self._client(target)
            folder = path.rpartition("/")[0]
            if folder:
                await client.makedirs(folder, exist_ok=True)
            await self._write(client, delivery, draft)
            if delivery.mode is not None:
                await client.chmod(draft, delivery.mode & 0o777)
            if delivery.mtime is not None:
                seconds = delivery.mtime / 1e9
                await client.utime(draft, (seconds, seconds))
            await self._rename(client, draft, path)
        except (OSError, asyncssh.Error) as error:
            if client is not None:
                with suppress(OSError, asyncssh.Error):
                    await client.remove(draft)
            raise self._explain(target, error) from error

    async def _write(self, client: asyncssh.SFTPClient, delivery: FileUpload, draft: str) -> None:
        with await asyncio.to_thread(FileRangeReader, delivery) as file_range:
            if delivery.span.whole:
                await client.put(file_range.path, draft)
                return
            async with client.open(draft, "wb") as file:
                while piece := await asyncio.to_thread(file_range.read):
                    await file.write(piece)

    async def remove(self, target: FileSource) -> None:
        try:
            await (await self._client(target)).remove(target.path)
        except asyncssh.SFTPNoSuchFile:
            return
        except (OSError, asyncssh.Error) as error:
            raise self._explain(target, error) from error

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for connection, client in clients.values():
            client.exit()
            connection.close()
            await connection.wait_closed()

    async def _read(self, file: asyncssh.SFTPClientFile, span: ByteRange, sink: ByteSink) -> None:
        """To the end of the file as it is now, or of what is wanted, whichever comes first."""
        at = span.offset
        end = (await file.stat()).size or 0
        if span.length is not None:
            end = min(end, at + span.length)
        while at < end:
            async with asyncio.timeout(self._transport_context.timeout):
                data = await file.read(min(CHUNK, end - at), at)
            if not data:
                return
            await sink.feed(cast(bytes, data))  # it was opened for bytes
            at += len(data)

    async def _rename(self, client: asyncssh.SFTPClient, draft: str, path: str) -> None:
        try:
            await client.posix_rename(draft, path)
        except asyncssh.SFTPOpUnsupported:
            with suppress(asyncssh.SFTPNoSuchFile):
                await client.remove(path)
            await client.rename(draft, path)

    async def _client(self, source: FileSource) -> asyncssh.SFTPClient:
        place = urlsplit(source.url).netloc
        async with self._opening.setdefault(place, asyncio.Lock()):
            if place not in self._clients:
                self._clients[place] = await self._connect(source)
            return self._clients[place][1]

    async def _connect(
        self, source: FileSource
    ) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        parts = urlsplit(source.url)
        found = self._transport_context.credentials.find(source.url)
        address = await self._transport_context.hosts.check(source.host)
        patience = min(30.0, self._transport_context.timeout)
        options: dict[str, Any] = {"connect_timeout": patience}
        if found.user:
            options["username"] = found.user
        if found.password:
            options["password"] = found.password
        if found.ssh_keyfile:
            options["client_keys"] = [found.ssh_keyfile]
        if self._transport_context.known_hosts is not None:
            options["known_hosts"] = str(self._transport_context.known_hosts)
        if parts.port:
            options["port"] = parts.port
        if address != source.host:
            async with asyncio.timeout(patience):
                options["sock"] = await _connected(address, parts.port or _PORT)
        connection = await asyncssh.connect(source.host, **options)
        return connection, await connection.start_sftp_client()

    def _explain(self, source: FileSource, error: Exception) -> PumpError:
        if isinstance(error, asyncssh.SFTPNoSuchFile | asyncssh.SFTPNoSuchPath):
            return SourceMissing(f"{source.path} is not on {source.host}")
        if not isinstance(error, asyncssh.SFTPError) or isinstance(
            error, asyncssh.SFTPConnectionLost | asyncssh.SFTPNoConnection
        ):
            # The next attempt has a connection of its own.
            gone = self._clients.pop(urlsplit(source.url).netloc, None)
            if gone is not None:
                gone[0].abort()
        return SourceUnavailable(f"{source.host}: {str(error) or type(error).__name__}")


async def _connected(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, (address, port))
    except BaseException:
        opened.close()
        raise
    return opened
