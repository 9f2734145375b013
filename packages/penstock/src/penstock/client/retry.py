"""Waiting for a broker that is away: how often one tries, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.client.errors import BrokerUnreachable

#: Between attempts to connect again: short, for most breaks are a broker's restart.
RECONNECT_SECONDS: Final = 0.5

T = TypeVar("T")


async def connect_with_retry(
    connect: Callable[[], Awaitable[T]],
    patience: float,
    away: tuple[type[Exception], ...] = (BrokerUnreachable,),
) -> T:
    """Try until there is a broker, for so many seconds; `away` are the errors that may pass."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        try:
            return await connect()
        except away:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(RECONNECT_SECONDS)
