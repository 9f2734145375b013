"""Wishes about jobs over AMQP 1.0, by a connection of their own.

They are kept in a stream. A broker that has none by this protocol closes the connection of whoever
asks for one, as RabbitMQ does before 4; that must not be the connection that work comes by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

from penstock.client import Fabric, connect
from penstock.client.body import Body
from penstock.core.errors import Unsupported
from penstock.jobs.queue.topology import CONTROL
from penstock.jobs.queue.wishes import Wish, read_wish, write_wish

#: So long a broker may take to say that it has the stream.
_SECONDS: Final = 5.0
_KEPT: Final = "7D"


async def tell_wish(url: str, wish: Wish) -> None:
    async with _told(url, write_wish(wish)):
        return


async def hear_wishes(url: str, wished: Callable[[Wish], None]) -> None:
    """From the first that is kept, and for good."""
    # Said by whoever comes: the stream is made by it, if it is not there.
    async with _told(url, {"mark": uuid4().hex}) as fabric:
        async for message in fabric.replay(CONTROL, "first"):
            if (wish := read_wish(message.body)) is not None:
                wished(wish)


@asynccontextmanager
async def _told(url: str, what: Body) -> AsyncIterator[Fabric]:
    async with connect(url, patience=_SECONDS) as fabric:
        try:
            async with asyncio.timeout(_SECONDS):
                await fabric.stream(CONTROL, max_age=_KEPT).send(what)
        except TimeoutError:
            raise Unsupported("this broker has no streams over AMQP 1.0: use amqp://") from None
        yield fabric
