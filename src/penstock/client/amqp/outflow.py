"""Messages as AMQP 0-9-1 sends them, and one address of an outlet to send them to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from pamqp.commands import Basic

from penstock.client.amqp.outlet import Outlet
from penstock.client.body import Body, encode_body
from penstock.client.fabric import Headers
from penstock.client.outflow import Outflow

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


def outflow(outlet: Outlet, routing_key: str) -> Outflow:
    async def post(
        body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]:
        content, properties = encode(body, headers=headers, ttl=ttl, message_id=message_id)
        return await outlet.post(routing_key, content, properties)

    return Outflow(post)
