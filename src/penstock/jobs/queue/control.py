"""Hearing the wishes about jobs: those of the past, and then each as it comes."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Final

from penstock.client.amqp091.connection import Connection
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.properties import PERSISTENT, Properties
from penstock.jobs.queue.topology import CONTROL, declare_control
from penstock.jobs.queue.wishes import Wish, read_wish
from penstock.wire.amqp091.messages import Content

log = get_logger(__name__)

#: How long the wishes of the past may take to be read, before work begins without them.
_SECONDS: Final = 10.0
_PREFETCH: Final = 500


async def hear_wishes(connection: Connection, wished: Callable[[Wish], None]) -> None:
    """From the first that is kept. Returns when those of the past are known: when a mark of our
    own, put behind them, has come back."""
    mark = json.dumps({"mark": uuid.uuid4().hex}).encode()
    caught_up = asyncio.Event()
    try:
        await declare_control(connection)
        channel = await connection.channel()

        def hear(contents: list[Content]) -> None:
            for content in contents:
                if (wish := read_wish(content.body)) is not None:
                    wished(wish)
                elif content.body == mark:
                    caught_up.set()
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = hear
        channel.publish("", CONTROL, mark, Properties("application/json", delivery_mode=PERSISTENT))
        await channel.prefetch(_PREFETCH)
        await channel.consume(CONTROL, "wishes", {"x-stream-offset": "first"})
        async with asyncio.timeout(_SECONDS):
            await caught_up.wait()
    except TimeoutError:
        log.warning("wishes to cancel are not all known yet", stream=CONTROL)
    except PenstockError as error:
        if connection.lost.done():
            raise
        log.warning("nothing can be cancelled: this broker has no streams", reason=str(error))
