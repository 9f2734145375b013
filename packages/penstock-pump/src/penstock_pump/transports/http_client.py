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
from typing import Final, NamedTuple, cast
from urllib.parse import quote, urlsplit

import httptools

from penstock.core.units import KiB, MiB
from penstock_pump.errors import UnsupportedSource
from penstock_pump.transports.transport import TransportContext

_CONNECT_SECONDS: Final = 30.0
_PORTS: Final = {"http": 80, "https": 443}
#: What a path on the wire may consist of; the rest is quoted, whoever it came from.
_PLAIN: Final = "!#$%&'()*+,/:;=?@[]~"
_ALL_PLAIN: Final = re.compile(r"/[A-Za-z0-9_.!$%&'()*+,/:;=?@\[\]~-]*")
_ENDED: Final = re.compile(r"[?#]")  #: a site ends there, path or not
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")
_FIELD: Final = re.compile(r"[\x20-\x7e]*")


class HttpServerAddress(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HttpClientRequest:
    server: HttpServerAddress
    head: bytes


def build_request(method: str, url: str, headers: Mapping[str, str]) -> HttpClientRequest:
    """A request as it is written; a URL that none can be made of is an error."""
    site, path = _parted(url)
    server = server_of(site)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {server}"]
    for name, value in headers.items():
        if not _FIELD.fullmatch(value):
            raise UnsupportedSource(f"{name} cannot be sent to {server}: it is not plain text")
        lines.append(f"{name}: {value}")
    return HttpClientRequest(server, "\r\n".join((*lines, "", "")).encode("latin-1"))


@lru_cache(1024)
def server_of(site: str) -> HttpServerAddress:
    """By the part of a URL before its path: thousands of files come from the same one."""
    try:
        parts = urlsplit(site)
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise UnsupportedSource(f"{site}: {error}") from None
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host):
        raise UnsupportedSource(f"{site!r} is no URL of an HTTP server")
    return HttpServerAddress(parts.scheme, host, port or _PORTS[parts.scheme])


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


class HttpConnectionPool:
    """Ended by `close`."""

    def __init__(self, transport_context: TransportContext) -> None:
        self._transport_context = transport_context
        self._room = asyncio.Semaphore(transport_context.connections)
        self._idle: dict[HttpServerAddress, list[HttpClientConnection]] = {}
        self._busy: set[HttpClientConnection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def ask(
        self, request: HttpClientRequest, body: AsyncIterator[bytes] | None = None
    ) -> HttpClientConnection:
        """The connection, when its answer begins; to be given back."""
        await self._room.acquire()
        try:
            return await self._ask(request, body)
        except BaseException:
            self._room.release()
            raise

    def give_back(self, server: HttpServerAddress, connection: HttpClientConnection) -> None:
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

    async def _ask(
        self, request: HttpClientRequest, body: AsyncIterator[bytes] | None
    ) -> HttpClientConnection:
        # What is sent in pieces cannot be sent twice: it has a connection of its own.
        kept = None if body is not None else self._kept(request.server)
        if kept is not None:
            try:
                return await self._answered(kept, request, None)
            except NoHttpResponse:
                pass  # it was closed before the server saw us
        return await self._answered(await self._open(request.server), request, body)

    async def _answered(
        self,
        connection: HttpClientConnection,
        request: HttpClientRequest,
        body: AsyncIterator[bytes] | None,
    ) -> HttpClientConnection:
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

    def _kept(self, server: HttpServerAddress) -> HttpClientConnection | None:
        idle = self._idle.get(server, [])
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _open(self, server: HttpServerAddress) -> HttpClientConnection:
        self._let_go(server)
        tls = self._trust() if server.scheme == "https" else None
        address = await self._transport_context.hosts.check(server.host)
        async with asyncio.timeout(min(_CONNECT_SECONDS, self._transport_context.timeout)):
            _, connection = await asyncio.get_running_loop().create_connection(
                HttpClientConnection,
                address,
                server.port,
                ssl=tls,
                server_hostname=server.host if tls else None,
            )
        return connection

    def _let_go(self, server: HttpServerAddress) -> None:
        """Connections to other servers are not kept in place of this one's."""
        for other, idle in list(self._idle.items()):
            alive = [each for each in idle if each.reusable]
            if (
                other != server
                and len(self._busy) + len(alive) >= self._transport_context.connections
            ):
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
        loop, timeout = asyncio.get_running_loop(), self._transport_context.timeout
        for connection in list(self._busy):
            if connection.silent is not None and loop.time() - connection.silent > timeout:
                connection.fail("no answer in time")
        self._watch = loop.call_later(min(1.0, timeout / 4), self._look)


# One connection to an HTTP/1.1 server: a request, its answer, and then perhaps the next.
#
# Bytes are cut into answers by httptools. A small answer comes with one wake-up of whoever waits
# for it; of a large one, reading stops while what has come is not taken. Redirects, ranges and whom
# to trust are for whoever asks.

#: What may have come and not been taken.
_ENOUGH: Final = 1 * MiB
#: No server has so much to say before the content.
_LONGEST_HEAD: Final = 64 * KiB


class BrokenHttpResponse(OSError):
    """The server has broken off, or what it sends is no HTTP."""


class NoHttpResponse(BrokenHttpResponse):
    """It has closed a connection that was kept open, before a word of an answer."""


class HttpClientConnection(asyncio.Protocol):
    """Made by a pool; asks one thing at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.reusable = False  #: after an answer that is whole
        self.silent: float | None = None  #: since when somebody waits for the server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = 0
        self._answered = False  #: the head is there
        self._whole = True
        self._failure: BrokenHttpResponse | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._paused = False
        self._drained = asyncio.Event()
        self._drained.set()

    # For whoever asks.

    def ask(self, head: bytes) -> None:
        self.status, self.reason, self.headers = 0, "", {}
        self._pieces, self._size, self._head = [], 0, 0
        self._answered = self._whole = self.reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._write(head)

    async def send(self, piece: bytes) -> None:
        """More of what is asked with; waits while the server does not take it."""
        if self._failure is not None:
            raise self._failure
        self._write(piece)
        self.silent = self._loop.time()
        await self._drained.wait()
        self.silent = None

    async def answer(self) -> None:
        """Returns when there is a status, and headers."""
        while not self._answered:
            await self._news()

    async def read(self) -> bytes:
        """More of the content; nothing at its end."""
        while not self._pieces:
            if self._whole:
                return b""
            await self._news()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def fail(self, words: str) -> None:
        """It has no use any more: told to whoever waits."""
        if not self._whole and self._failure is None:
            self._failure = BrokenHttpResponse(words)
        self.close()
        self._wake()

    async def _news(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiting = self._loop.create_future()
        self.silent = self._loop.time()
        try:
            await self._waiting
        finally:
            self._waiting = self.silent = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # What the socket says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.silent is not None:
            self.silent = self._loop.time()
        if self._whole:  # nobody has asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.reusable = False  # should the answer be whole, there was something behind it
            self.fail(f"the answer is no HTTP: {error}")
            return
        self._head += 0 if self._answered else len(data)
        if self._head > _LONGEST_HEAD:
            self.fail(f"more than {_LONGEST_HEAD} bytes before the content")
            return
        if self._size > _ENOUGH and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if not self._whole and self._failure is None:
            to_its_end = not {"content-length", "transfer-encoding"}.intersection(self.headers)
            if self._answered and to_its_end and error is None:
                self._whole = True
            elif self.status == 0 and not self._head:
                self._failure = NoHttpResponse("the server has closed the connection")
            else:
                self._failure = BrokenHttpResponse("the server has broken off")
        self._drained.set()
        self._wake()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    # What the parser says; behind an answer that is whole, nobody has asked for anything.

    def on_message_begin(self) -> None:
        if self._whole:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        if not self._whole:
            self.reason = reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self._whole:
            self.status = self._parser.get_status_code()
            self._answered = self.status >= 200  # others come before the answer

    def on_body(self, body: bytes) -> None:
        if not self._whole:
            self._pieces.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if not self._answered:
            self.headers = {}
        elif not self._whole:
            self._whole = True
            self.reusable = bool(self._parser.should_keep_alive())
