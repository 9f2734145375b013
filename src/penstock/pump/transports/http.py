"""HTTP and HTTPS, by aiohttp: ranges, redirects that stay allowed, PUT and DELETE.

A server that does not know ranges sends all of a file; what comes before the stretch that was asked
for is then passed over. Contents are taken as they lie on the server: nothing is decompressed.
Redirects are followed here, one by one, so that each is checked and none is given the credentials
of another host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from yarl import URL

from penstock.pump.errors import (
    PumpError,
    SourceMissing,
    SourceUnavailable,
    UnsupportedSource,
    WrongSize,
)
from penstock.pump.sources import Source
from penstock.pump.transports.contract import Circumstances, Delivery, Sink, Span
from penstock.pump.transports.stretch import Stretch

_IDENTITY: Final = {"Accept-Encoding": "identity"}
_CONNECT_SECONDS: Final = 30.0
_REDIRECTS: Final = 5
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_NEVER: Final = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class Http:
    """Keeps `Transport`; one pool of connections for all servers, opened when first needed."""

    def __init__(self, circumstances: Circumstances) -> None:
        self._circumstances = circumstances
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, source: Source, span: Span, sink: Sink) -> None:
        headers = {}
        if not span.whole:
            end = "" if span.length is None else str(span.offset + span.length - 1)
            headers["Range"] = f"bytes={span.offset}-{end}"
        async with self._answer("GET", source, headers=headers) as answer:
            _check_status(answer, source)
            skip = _skipped(answer, span, source)
            # A server without ranges goes on to the end of the file: we need not.
            left = None if answer.status == HTTPStatus.PARTIAL_CONTENT else span.length
            async for chunk in answer.content.iter_any():
                passed = min(skip, len(chunk))
                skip -= passed
                data = chunk[passed:] if left is None else chunk[passed : passed + left]
                if data:
                    await sink.feed(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        answer.close()  # the rest of it is not worth reading
                        return

    async def send(self, delivery: Delivery, target: Source) -> None:
        with await asyncio.to_thread(Stretch, delivery.path, delivery.span) as stretch:
            headers = {"Content-Length": str(stretch.size)}
            # An empty body would be sent in chunks, of which there are none.
            body: Any = _pieces(stretch) if stretch.size else b""
            async with self._answer("PUT", target, headers=headers, data=body) as answer:
                _check_status(answer, target)

    async def remove(self, target: Source) -> None:
        async with self._answer("DELETE", target) as answer:
            if answer.status not in _GONE:
                _check_status(answer, target)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _answer(
        self, method: str, source: Source, headers: dict[str, str] | None = None, data: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = source.url
        try:
            for _ in range(_REDIRECTS):
                await self._circumstances.hosts.check(URL(url).host or "")
                told = {**_IDENTITY, **(headers or {}), **self._authorization(url)}
                async with self._open().request(
                    method,
                    URL(url, encoded=True),
                    headers=told,
                    data=data,
                    allow_redirects=False,
                ) as answer:
                    onward = answer.headers.get("Location")
                    if answer.status // 100 != 3 or onward is None or method != "GET":
                        yield answer
                        return
                    url = str(URL(url, encoded=True).join(URL(onward, encoded=True)))
        except TimeoutError as error:
            raise SourceUnavailable(f"{url}: no answer in time") from error
        except (aiohttp.InvalidURL, ValueError) as error:
            raise UnsupportedSource(f"{url}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceUnavailable(f"{url}: {str(error) or type(error).__name__}") from error
        raise SourceUnavailable(f"{source.url}: sent on more than {_REDIRECTS} times")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = self._circumstances.timeout
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._circumstances.connections),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=min(_CONNECT_SECONDS, timeout), sock_read=timeout
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent",),
            )
        return self._session

    def _authorization(self, url: str) -> dict[str, str]:
        found = self._circumstances.credentials.find(url)
        if found.bearer_token:
            return {"Authorization": f"Bearer {found.bearer_token}"}
        if found.user and found.password:
            return {"Authorization": aiohttp.BasicAuth(found.user, found.password).encode()}
        return {}


def _check_status(answer: aiohttp.ClientResponse, source: Source) -> None:
    if answer.ok:
        return
    raise _refusal(answer.status)(f"{source.url}: {answer.status} {answer.reason}")


def _refusal(status: int) -> type[PumpError]:
    if status in _GONE:
        return SourceMissing
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return WrongSize
    return UnsupportedSource if status in _NEVER else SourceUnavailable


def _skipped(answer: aiohttp.ClientResponse, span: Span, source: Source) -> int:
    """How much of the answer comes before what was asked for."""
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        return span.offset
    begin = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if begin != str(span.offset):
        raise SourceUnavailable(f"{source.url}: asked from {span.offset}, sent from {begin!r}")
    return 0


async def _pieces(stretch: Stretch) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(stretch.read):
        yield piece
