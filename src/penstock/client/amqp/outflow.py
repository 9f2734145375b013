"""The sending end that programs hold: one address of an outlet."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from pamqp.commands import Basic

from penstock.client.amqp.outlet import Outlet
from penstock.client.body import Body, encode_body
from penstock.client.fabric import Headers

PERSISTENT: Final = 2
TRANSIENT: Final = 1


def encode(
    body: Body,
    *,
    headers: Headers | None = None,
    ttl: float | None = None,
    message_id: str | None = None,
    mode: int = PERSISTENT,
) -> tuple[bytes, Basic.Properties]:
    """The body as bytes, and the properties that go with it."""
    content, content_type = encode_body(body)
    return content, Basic.Properties(
        content_type=content_type,
        headers=dict(headers) if headers else None,
        delivery_mode=mode,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
        message_id=message_id or uuid4().hex,
        timestamp=datetime.now(UTC),
    )


class Outflow:
    """Where to send; keeps `penstock.client.fabric.Outflow`."""

    def __init__(self, outlet: Outlet, routing_key: str) -> None:
        self._outlet = outlet
        self._routing_key = routing_key
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
        content, properties = encode(body, headers=headers, ttl=ttl, message_id=message_id)
        await (await self._outlet.post(self._routing_key, content, properties))

    async def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> asyncio.Future[None]:
        content, properties = encode(body, headers=headers, ttl=ttl, message_id=message_id)
        safe = await self._outlet.post(self._routing_key, content, properties)
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
