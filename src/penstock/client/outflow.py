"""The sending end that programs hold: one address, whichever protocol leads there."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol, Self

from penstock.client.body import Body
from penstock.client.fabric import Headers


class Post(Protocol):
    """Takes a message when there is room for it; the future tells when it is safe."""

    async def __call__(
        self, body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]: ...


class Outflow:
    """Where to send; keeps `penstock.client.fabric.Outflow`."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._posted: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None

    async def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        await (await self._post(body, headers, ttl, message_id))

    async def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> asyncio.Future[None]:
        safe = await self._post(body, headers, ttl, message_id)
        self._posted.add(safe)
        safe.add_done_callback(self._settled)
        return safe

    async def flush(self) -> None:
        while self._posted:
            await asyncio.wait(self._posted)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.flush()

    def _settled(self, safe: asyncio.Future[None]) -> None:
        self._posted.discard(safe)
        if self._failure is None and not safe.cancelled():
            self._failure = safe.exception()
