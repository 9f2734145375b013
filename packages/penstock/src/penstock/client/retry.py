"""How a client waits for a broker that is unreachable."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy

log = get_logger(__name__)

#: Short delays, because most lost connections are restarts of the broker.
RECONNECT: Final = RetryPolicy(first=0.1, longest=1.0, total=math.inf)

T = TypeVar("T")


async def connect_with_retry(
    connect: Callable[[], Awaitable[T]],
    retry_seconds: float = math.inf,
    transient: tuple[type[Exception], ...] = (BrokerUnreachable,),
) -> T:
    """Call `connect` until it succeeds, for so long; `transient` are the errors to retry."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + retry_seconds
    for delay in RECONNECT.delays():
        try:
            return await connect()
        except transient as error:
            if isinstance(error, ConfigurationError) or loop.time() + delay > deadline:
                raise
        await asyncio.sleep(delay)
    raise AssertionError("delays() does not end")


async def reconnect_when_lost(
    lost: asyncio.Event,
    connect: Callable[[], Awaitable[None]],
    on_failed: Callable[[PenstockError], None],
    broker: object,
) -> None:
    """Reconnect each time `lost` is set, which `connect` clears, until the broker refuses."""
    while True:
        await lost.wait()
        try:
            await connect_with_retry(connect)
        except PenstockError as error:
            on_failed(error)
            return
        log.info("connection recovered", broker=str(broker))
