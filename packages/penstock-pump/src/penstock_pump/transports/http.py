"""HTTP and HTTPS: ranges, redirects that stay allowed, PUT and DELETE.

A server that does not know ranges sends all of a file; what comes before the stretch that was asked
for is then passed over. Contents are taken as they lie on the server: nothing is decompressed.
Redirects are followed here, one by one, so that each is checked and none is given the credentials
of another host.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from types import TracebackType
from typing import Final
from urllib.parse import urljoin

from penstock_pump.errors import (
    PumpError,
    SourceMissing,
    SourceUnavailable,
    UnsupportedSource,
    WrongSize,
)
from penstock_pump.transports.http_client import (
    HttpClientConnection,
    HttpConnectionPool,
    HttpServerAddress,
    build_request,
)
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
)

_IDENTITY: Final = {"Accept-Encoding": "identity"}
_REDIRECTS: Final = 5
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_NEVER: Final = (
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
    HTTPStatus.REQUEST_URI_TOO_LONG,
)


class HttpTransport:
    """Keeps `Transport`; one pool of connections for all servers."""

    def __init__(self, transport_context: TransportContext) -> None:
        self._transport_context = transport_context
        self._pool = HttpConnectionPool(transport_context)
        # Secrets are a server's: they need not be looked for anew for each of its files.
        self._secrets = lru_cache(256)(self._authorization)

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        headers = {}
        if not span.whole:
            end = "" if span.length is None else str(span.offset + span.length - 1)
            headers["Range"] = f"bytes={span.offset}-{end}"
        async with self._answer("GET", source, headers) as answer:
            _check_status(answer, source)
            skip = _skipped(answer, span, source)
            # A server without ranges goes on to the end of the file: we need not.
            left = None if answer.status == HTTPStatus.PARTIAL_CONTENT else span.length
            while chunk := await answer.read():
                passed = min(skip, len(chunk))
                skip -= passed
                data = chunk[passed:] if left is None else chunk[passed : passed + left]
                if data:
                    await sink.feed(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        return  # the rest of it is not worth reading

    async def send(self, delivery: FileUpload, target: FileSource) -> None:
        with await asyncio.to_thread(FileRangeReader, delivery) as file_range:
            headers = {"Content-Length": str(file_range.size)}
            async with self._answer("PUT", target, headers, _pieces(file_range)) as answer:
                _check_status(answer, target)

    async def remove(self, target: FileSource) -> None:
        async with self._answer("DELETE", target) as answer:
            if answer.status not in _GONE:
                _check_status(answer, target)

    async def close(self) -> None:
        await self._pool.close()

    def _answer(
        self,
        method: str,
        source: FileSource,
        headers: Mapping[str, str] | None = None,
        body: AsyncIterator[bytes] | None = None,
    ) -> _HttpResponse:
        return _HttpResponse(self, method, source.url, headers or {}, body)

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: AsyncIterator[bytes] | None
    ) -> tuple[HttpServerAddress, HttpClientConnection]:
        """The answer that is not a word to ask elsewhere, and who gives it."""
        asked = url
        for _ in range(_REDIRECTS):
            told = {**_IDENTITY, **headers, **self._secrets(_site(url))}
            wanted = build_request(method, url, told)
            answer = await self._pool.ask(wanted, body)
            onward = answer.headers.get("location")
            if answer.status // 100 != 3 or onward is None or method != "GET":
                return wanted.server, answer
            self.give_back(wanted.server, answer)
            url = urljoin(url, onward)
        raise SourceUnavailable(f"{asked}: sent on more than {_REDIRECTS} times")

    def give_back(self, server: HttpServerAddress, answer: HttpClientConnection) -> None:
        self._pool.give_back(server, answer)

    def _authorization(self, site: str) -> dict[str, str]:
        found = self._transport_context.credentials.find(site)
        if found.bearer_token:
            return {"Authorization": f"Bearer {found.bearer_token}"}
        if found.user and found.password:
            secret = b64encode(f"{found.user}:{found.password}".encode()).decode()
            return {"Authorization": f"Basic {secret}"}
        return {}


class _HttpResponse:
    """An answer while it is read; what breaks meanwhile is the server's fault."""

    __slots__ = ("_answer", "_asked", "_http", "_server")

    def __init__(
        self,
        http: HttpTransport,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | None,
    ) -> None:
        self._http = http
        self._asked = (method, url, headers, body)

    async def __aenter__(self) -> HttpClientConnection:
        try:
            self._server, self._answer = await self._http.ask(*self._asked)
        except OSError as error:
            raise self._explained(error) from error
        return self._answer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.give_back(self._server, self._answer)
        if isinstance(error, OSError):
            raise self._explained(error) from error

    def _explained(self, error: OSError) -> SourceUnavailable:
        slow = isinstance(error, TimeoutError)
        reason = "no answer in time" if slow else str(error) or type(error).__name__
        return SourceUnavailable(f"{self._asked[1]}: {reason}")


def _site(url: str) -> str:
    """All of a URL before its path."""
    at = url.find("/", url.find("://") + 3)
    return url if at < 0 else url[:at]


def _check_status(answer: HttpClientConnection, source: FileSource) -> None:
    if answer.status < 400:
        return
    raise _refusal(answer.status)(f"{source.url}: {answer.status} {answer.reason}")


def _refusal(status: int) -> type[PumpError]:
    if status in _GONE:
        return SourceMissing
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return WrongSize
    return UnsupportedSource if status in _NEVER else SourceUnavailable


def _skipped(answer: HttpClientConnection, span: ByteRange, source: FileSource) -> int:
    """How much of the answer comes before what was asked for."""
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        return span.offset
    begin = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    if begin != str(span.offset):
        raise SourceUnavailable(f"{source.url}: asked from {span.offset}, sent from {begin!r}")
    return 0


async def _pieces(file_range: FileRangeReader) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file_range.read):
        yield piece
