"""HTTP and HTTPS: GET with ranges and redirects, PUT and DELETE.

A server without ranges sends the whole file; the bytes before the range are skipped. Content is
never decompressed. Redirects are followed here, so that each host is checked and none gets the
credentials of another.
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

from penstock.core.units import MiB
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
from penstock_pump.transports.listing import ListedFile
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
    WholeFilesOnly,
)

_MAX_INDEX_BYTES: Final = 64 * MiB
_REDIRECTS: Final = 5
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_NEVER: Final = (
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
    HTTPStatus.REQUEST_URI_TOO_LONG,
)


class HttpTransport(WholeFilesOnly):
    def __init__(self, context: TransportContext) -> None:
        self._context = context
        self._pool = HttpConnectionPool(context)
        self._headers = {"Accept-Encoding": "identity", "User-Agent": context.user_agent}
        self._authorization_of = lru_cache(256)(self._authorization)

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        headers = {}
        if not span.whole:
            end = "" if span.length is None else str(span.offset + span.length - 1)
            headers["Range"] = f"bytes={span.offset}-{end}"
        async with self._request("GET", source, headers) as response:
            _check_status(response, source)
            skip = _skipped(response, span, source)
            # A server without ranges sends more than was asked for.
            left = None if response.status == HTTPStatus.PARTIAL_CONTENT else span.length
            while chunk := await response.read():
                skipped = min(skip, len(chunk))
                skip -= skipped
                data = chunk[skipped:] if left is None else chunk[skipped : skipped + left]
                if data:
                    await sink.feed(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        return

    async def send(self, upload: FileUpload, target: FileSource) -> None:
        with await asyncio.to_thread(FileRangeReader, upload) as file_range:
            headers = {"Content-Length": str(file_range.size)}
            async with self._request("PUT", target, headers, _pieces(file_range)) as response:
                _check_status(response, target)

    async def remove(self, target: FileSource) -> None:
        async with self._request("DELETE", target) as response:
            if response.status not in _GONE:
                _check_status(response, target)

    async def list(self, source: FileSource) -> list[ListedFile]:
        pieces, size = [], 0
        async with self._request("GET", source) as response:
            _check_status(response, source)
            while piece := await response.read():
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_INDEX_BYTES:
                    raise WrongSize(
                        f"{source.url}: the index has more than {_MAX_INDEX_BYTES} bytes"
                    )
        page = b"".join(pieces).decode(errors="replace")
        return self._context.index_reader(page, source.url, self._context.zone)

    async def close(self) -> None:
        await self._pool.close()

    def _request(
        self,
        method: str,
        source: FileSource,
        headers: Mapping[str, str] | None = None,
        body: AsyncIterator[bytes] | None = None,
    ) -> _HttpResponse:
        return _HttpResponse(self, method, source.url, headers or {}, body)

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: AsyncIterator[bytes] | None
    ) -> tuple[HttpServerAddress, HttpClientConnection]:
        """The final response, after redirects, and its server."""
        first = url
        for _ in range(_REDIRECTS):
            all_headers = {**self._headers, **headers, **self._authorized(url)}
            request = build_request(method, url, all_headers)
            response = await self._pool.request(request, body)
            location = response.headers.get("location")
            if response.status // 100 != 3 or location is None or method != "GET":
                return request.server, response
            self.release(request.server, response)
            url = urljoin(url, location)
        raise SourceUnavailable(f"{first}: more than {_REDIRECTS} redirects")

    def release(self, server: HttpServerAddress, response: HttpClientConnection) -> None:
        self._pool.release(server, response)

    def _authorized(self, url: str) -> dict[str, str]:
        return self._authorization_of(_site(url), self._context.credentials.version)

    def _authorization(self, site: str, version: int) -> dict[str, str]:
        """Of a `version` of the credentials, which plugins may change."""
        found = self._context.credentials.find(site)
        if found.bearer_token:
            return {"Authorization": f"Bearer {found.bearer_token}"}
        if found.user and found.password:
            secret = b64encode(f"{found.user}:{found.password}".encode()).decode()
            return {"Authorization": f"Basic {secret}"}
        return {}


class _HttpResponse:
    """A response while it is read. A class, because a generator costs more per file."""

    __slots__ = ("_arguments", "_http", "_response", "_server")

    def __init__(
        self,
        http: HttpTransport,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | None,
    ) -> None:
        self._http = http
        self._arguments = (method, url, headers, body)

    async def __aenter__(self) -> HttpClientConnection:
        try:
            self._server, self._response = await self._http.request(*self._arguments)
        except OSError as error:
            raise self._explain(error) from error
        return self._response

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.release(self._server, self._response)
        if isinstance(error, OSError):
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> SourceUnavailable:
        slow = isinstance(error, TimeoutError)
        reason = "timeout" if slow else str(error) or type(error).__name__
        return SourceUnavailable(f"{self._arguments[1]}: {reason}")


def _site(url: str) -> str:
    """The part of a URL before its path."""
    at = url.find("/", url.find("://") + 3)
    return url if at < 0 else url[:at]


def _check_status(response: HttpClientConnection, source: FileSource) -> None:
    if response.status < 400:
        return
    raise _refusal(response.status)(f"{source.url}: {response.status} {response.reason}")


def _refusal(status: int) -> type[PumpError]:
    if status in _GONE:
        return SourceMissing
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return WrongSize
    return UnsupportedSource if status in _NEVER else SourceUnavailable


def _skipped(response: HttpClientConnection, span: ByteRange, source: FileSource) -> int:
    """Bytes of the response before the range."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return span.offset
    begin = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    if begin != str(span.offset):
        raise SourceUnavailable(
            f"{source.url}: range requested from {span.offset}, sent from {begin!r}"
        )
    return 0


async def _pieces(file_range: FileRangeReader) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file_range.read):
        yield piece
