"""Connections to HTTP servers, kept open between requests; so many at a time.

A server that is silent for too long is given up, one that closes a connection just as it is used
again is asked anew over another. Where hosts are checked, the address that was found allowed is the
one that is connected to.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from penstock.pump.errors import UnsupportedSource
from penstock.pump.transports.contract import Circumstances
from penstock.pump.transports.http1 import Connection, Unanswered

_CONNECT_SECONDS: Final = 30.0
_PORTS: Final = {"http": 80, "https": 443}
#: What a path on the wire may consist of; the rest is quoted, whoever it came from.
_PLAIN: Final = "!#$%&'()*+,/:;=?@[]~"
_ALL_PLAIN: Final = re.compile(r"/[A-Za-z0-9_.!$%&'()*+,/:;=?@\[\]~-]*")
_ENDED: Final = re.compile(r"[?#]")  #: a site ends there, path or not
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")
_FIELD: Final = re.compile(r"[\x20-\x7e]*")


class Server(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Request:
    server: Server
    head: bytes


def request(method: str, url: str, headers: Mapping[str, str]) -> Request:
    """A request as it is written; a URL that none can be made of is an error."""
    site, path = _parted(url)
    server = server_of(site)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {server}"]
    for name, value in headers.items():
        if not _FIELD.fullmatch(value):
            raise UnsupportedSource(f"{name} cannot be sent to {server}: it is not plain text")
        lines.append(f"{name}: {value}")
    return Request(server, "\r\n".join((*lines, "", "")).encode("latin-1"))


@lru_cache(1024)
def server_of(site: str) -> Server:
    """By the part of a URL before its path: thousands of files come from the same one."""
    try:
        parts = urlsplit(site)
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise UnsupportedSource(f"{site}: {error}") from None
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host):
        raise UnsupportedSource(f"{site!r} is no URL of an HTTP server")
    return Server(parts.scheme, host, port or _PORTS[parts.scheme])


def _parted(url: str) -> tuple[str, str]:
    """The site, and the path on it with its query, as it goes on the wire."""
    at = url.find("/", url.find("://") + 3)
    if at > 0 and _ALL_PLAIN.fullmatch(url, at) and not _ENDED.search(url, 0, at):
        return url[:at], url[at:]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UnsupportedSource(f"{url}: {error}") from None
    path = quote(parts.path, _PLAIN) or "/"
    if parts.query:
        path += "?" + quote(parts.query, _PLAIN)
    return f"{parts.scheme}://{parts.netloc}", path


class Pool:
    """Ended by `close`."""

    def __init__(self, circumstances: Circumstances) -> None:
        self._circumstances = circumstances
        self._room = asyncio.Semaphore(circumstances.connections)
        self._idle: dict[Server, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def ask(self, request: Request, body: AsyncIterator[bytes] | None = None) -> Connection:
        """The connection, when its answer begins; to be given back."""
        await self._room.acquire()
        try:
            return await self._ask(request, body)
        except BaseException:
            self._room.release()
            raise

    def give_back(self, server: Server, connection: Connection) -> None:
        self._room.release()
        self._busy.discard(connection)
        if connection.reusable:
            self._idle.setdefault(server, []).append(connection)
        else:
            connection.close()

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for connection in (*self._busy, *(each for idle in self._idle.values() for each in idle)):
            connection.close()
        self._idle.clear()

    async def _ask(self, request: Request, body: AsyncIterator[bytes] | None) -> Connection:
        # What is sent in pieces cannot be sent twice: it has a connection of its own.
        kept = None if body is not None else self._kept(request.server)
        if kept is not None:
            try:
                return await self._answered(kept, request, None)
            except Unanswered:
                pass  # it was closed before the server saw us
        return await self._answered(await self._open(request.server), request, body)

    async def _answered(
        self, connection: Connection, request: Request, body: AsyncIterator[bytes] | None
    ) -> Connection:
        self._busy.add(connection)
        if self._watch is None:
            self._look()
        try:
            connection.ask(request.head)
            if body is not None:
                async for piece in body:
                    await connection.send(piece)
            await connection.answer()
        except BaseException:
            self._busy.discard(connection)
            connection.close()
            raise
        return connection

    def _kept(self, server: Server) -> Connection | None:
        idle = self._idle.get(server, [])
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _open(self, server: Server) -> Connection:
        self._let_go(server)
        tls = self._trust() if server.scheme == "https" else None
        address = await self._circumstances.hosts.check(server.host)
        async with asyncio.timeout(min(_CONNECT_SECONDS, self._circumstances.timeout)):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                address,
                server.port,
                ssl=tls,
                server_hostname=server.host if tls else None,
            )
        return connection

    def _let_go(self, server: Server) -> None:
        """Connections to other servers are not kept in place of this one's."""
        for other, idle in list(self._idle.items()):
            alive = [each for each in idle if each.reusable]
            if other != server and len(self._busy) + len(alive) >= self._circumstances.connections:
                for each in alive:
                    each.close()
                alive = []
            if alive:
                self._idle[other] = alive
            else:
                del self._idle[other]

    def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _look(self) -> None:
        """Who has been silent for too long."""
        self._watch = None
        if not self._busy:
            return
        loop, timeout = asyncio.get_running_loop(), self._circumstances.timeout
        for connection in list(self._busy):
            if connection.silent is not None and loop.time() - connection.silent > timeout:
                connection.fail("no answer in time")
        self._watch = loop.call_later(min(1.0, timeout / 4), self._look)
