"""SFTP with asyncssh: one connection for each server, shared by all transfers.

Keys, known hosts and aliases are those of the user's ssh configuration, unless the credentials have
a key file or a password. Where hosts are checked, the connection goes to the checked address, and
the host key is looked up under the host's name.
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
from penstock_pump.transports.listing import ListedFile
from penstock_pump.transports.proxy import open_through_proxy
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
)

#: asyncssh requests a range of this size in pieces, all at the same time.
CHUNK: Final = MiB
_PORT: Final = 22


class SftpTransport:
    can_write_blocks = True

    def __init__(self, context: TransportContext) -> None:
        self._context = context
        self._opening: dict[str, asyncio.Lock] = {}
        self._clients: dict[str, tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]] = {}

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        try:
            client = await self._client(source)
            async with client.open(source.path, "rb") as file:
                await self._read(file, span, sink)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(source, error) from error

    async def send(self, upload: FileUpload, target: FileSource) -> None:
        path = target.path
        temporary = path + (upload.inflight or ".tmp")
        client = None
        try:
            client = await self._client(target)
            await self._make_parents(client, path)
            await self._write(client, upload, temporary)
            await self._finish(client, upload, temporary, path)
        except (OSError, asyncssh.Error) as error:
            if client is not None:
                with suppress(OSError, asyncssh.Error):
                    await client.remove(temporary)
            raise self._explain(target, error) from error

    async def _write(self, client: asyncssh.SFTPClient, upload: FileUpload, temporary: str) -> None:
        with await asyncio.to_thread(FileRangeReader, upload) as file_range:
            if upload.span.whole and upload.pace is None:
                await client.put(file_range.path, temporary, follow_symlinks=True)
                return
            async with client.open(temporary, "wb") as file:
                while piece := await asyncio.to_thread(file_range.read):
                    await file.write(piece)

    async def _finish(
        self, client: asyncssh.SFTPClient, upload: FileUpload, temporary: str, path: str
    ) -> None:
        if upload.mode is not None:
            await client.chmod(temporary, upload.mode & 0o777)
        if upload.mtime is not None:
            seconds = upload.mtime / 1e9
            await client.utime(temporary, (seconds, seconds))
        await self._rename(client, temporary, path)

    async def write_block(self, upload: FileUpload, temporary: FileSource, offset: int) -> None:
        try:
            client = await self._client(temporary)
            await self._make_parents(client, temporary.path)
            flags = asyncssh.FXF_WRITE | asyncssh.FXF_CREAT
            with await asyncio.to_thread(FileRangeReader, upload) as file_range:
                async with client.open(temporary.path, flags, encoding=None) as file:
                    while piece := await asyncio.to_thread(file_range.read):
                        offset += await file.write(piece, offset)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(temporary, error) from error

    async def finish_file(
        self, upload: FileUpload, temporary: FileSource, target: FileSource
    ) -> None:
        """A file that was finished before, by an attempt that was not acknowledged, is left."""
        try:
            client = await self._client(target)
            if await client.exists(temporary.path) or not await client.exists(target.path):
                await self._finish(client, upload, temporary.path, target.path)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(target, error) from error

    async def list(self, source: FileSource) -> list[ListedFile]:
        try:
            client = await self._client(source)
            found = [each async for each in client.scandir(source.path or ".")]
        except (OSError, asyncssh.Error) as error:
            raise self._explain(source, error) from error
        return [
            ListedFile(
                str(each.filename),
                each.attrs.type == asyncssh.FILEXFER_TYPE_DIRECTORY,
                each.attrs.size,
                None if each.attrs.mtime is None else each.attrs.mtime * 10**9,
            )
            for each in found
            if each.filename not in (".", "..")
        ]

    async def make_link(self, target: FileSource, link: str) -> None:
        try:
            client = await self._client(target)
            await self._make_parents(client, target.path)
            temporary = f"{target.path}.link"
            with suppress(asyncssh.SFTPNoSuchFile):
                await client.remove(temporary)
            await client.symlink(link, temporary)
            await self._rename(client, temporary, target.path)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(target, error) from error

    async def make_directory(self, target: FileSource, mode: int | None) -> None:
        try:
            client = await self._client(target)
            await client.makedirs(target.path, exist_ok=True)
            if mode is not None:
                await client.chmod(target.path, mode & 0o777)
        except (OSError, asyncssh.Error) as error:
            raise self._explain(target, error) from error

    async def remove_directory(self, target: FileSource) -> None:
        try:
            await (await self._client(target)).rmdir(target.path)
        except asyncssh.SFTPNoSuchFile:
            return
        except (OSError, asyncssh.Error) as error:
            raise self._explain(target, error) from error

    async def _make_parents(self, client: asyncssh.SFTPClient, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder:
            await client.makedirs(folder, exist_ok=True)

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
        """To the end of the range, or of the file as it is now."""
        at = span.offset
        end = (await file.stat()).size or 0
        if span.length is not None:
            end = min(end, at + span.length)
        while at < end:
            async with asyncio.timeout(self._context.timeout):
                data = await file.read(min(CHUNK, end - at), at)
            if not data:
                return
            await sink.feed(cast(bytes, data))  # the file was opened in binary mode
            at += len(data)

    async def _rename(self, client: asyncssh.SFTPClient, temporary: str, path: str) -> None:
        try:
            await client.posix_rename(temporary, path)
        except asyncssh.SFTPOpUnsupported:
            with suppress(asyncssh.SFTPNoSuchFile):
                await client.remove(path)
            await client.rename(temporary, path)

    async def _client(self, source: FileSource) -> asyncssh.SFTPClient:
        server = urlsplit(source.url).netloc
        async with self._opening.setdefault(server, asyncio.Lock()):
            if server not in self._clients:
                self._clients[server] = await self._connect(source)
            return self._clients[server][1]

    async def _connect(
        self, source: FileSource
    ) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        parts = urlsplit(source.url)
        found = self._context.credentials.find(source.url)
        proxy = self._context.proxy.proxy_for("sftp", source.host)
        address = source.host if proxy else await self._context.hosts.check(source.host)
        timeout = min(30.0, self._context.timeout)
        options: dict[str, Any] = {"connect_timeout": timeout}
        if found.user:
            options["username"] = found.user
        if found.password:
            options["password"] = found.password
        if found.ssh_keyfile:
            options["client_keys"] = [found.ssh_keyfile]
        if self._context.known_hosts is not None:
            options["known_hosts"] = str(self._context.known_hosts)
        if parts.port:
            options["port"] = parts.port
        if proxy is not None:
            options["sock"] = await open_through_proxy(
                proxy, source.host, parts.port or _PORT, timeout
            )
        elif address != source.host:
            async with asyncio.timeout(timeout):
                options["sock"] = await _connected_socket(address, parts.port or _PORT)
        connection = await asyncssh.connect(source.host, **options)
        return connection, await connection.start_sftp_client()

    def _explain(self, source: FileSource, error: Exception) -> PumpError:
        if isinstance(error, asyncssh.SFTPNoSuchFile | asyncssh.SFTPNoSuchPath):
            return SourceMissing(f"{source.host} has no file {source.path}")
        if not isinstance(error, asyncssh.SFTPError) or isinstance(
            error, asyncssh.SFTPConnectionLost | asyncssh.SFTPNoConnection
        ):
            # The next attempt opens a new connection.
            lost = self._clients.pop(urlsplit(source.url).netloc, None)
            if lost is not None:
                lost[0].abort()
        return SourceUnavailable(f"{source.host}: {str(error) or type(error).__name__}")


async def _connected_socket(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, (address, port))
    except BaseException:
        opened.close()
        raise
    return opened
