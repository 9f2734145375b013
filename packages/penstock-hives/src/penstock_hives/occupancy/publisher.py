"""Publish occupancy of hives to the broker and the cache.

A change is published to the exchange `occupancy` with routing key `occupancy.<hive>` and cached
under `h1:hive:<id>`, as the same JSON document. The exchange is bound to `amq.topic`, so MQTT
clients receive it on `occupancy/<hive>`. Delivery is at least once: the message id is hive and
version, and a version is complete, so consumers can ignore duplicates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from penstock.client import Fabric, connect
from penstock.client.blocking_client import EventLoopThread
from penstock_hives.occupancy.gold.status import HiveStatus
from penstock_store.cache import BlockingCache, CacheKeys

EXCHANGE: Final = "occupancy"
#: Where MQTT's topics are.
TOPIC_EXCHANGE: Final = "amq.topic"
#: The first form of a hive's document.
CACHE_KEYS: Final = CacheKeys("h", 1)


class OccupancyPublisher(Protocol):
    """Where changes are told."""

    def connect(self) -> None:
        """Raises unless it can be told anything."""

    def publish(self, standings: Sequence[HiveStatus]) -> None:
        """Returns when all of it is safe."""

    def close(self) -> None: ...


def status_document(standing: HiveStatus) -> dict[str, Any]:
    return {
        "hive": standing.hive_id,
        "occupancy": standing.occupancy,
        "percent": None if standing.percent is None else round(standing.percent, 1),
        "level": standing.level,
        "trend": standing.trend,
        "quality": standing.quality,
        "as_of": standing.as_of.isoformat().replace("+00:00", "Z"),
        "version": standing.version,
    }


def status_routing_key(hive: int) -> str:
    return f"{EXCHANGE}.{hive}"


def message_id(standing: HiveStatus) -> str:
    return f"{standing.hive_id}-{standing.version}"


class BrokerOccupancyPublisher:
    """To a broker, which is connected to when there is something to say."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop: EventLoopThread | None = None
        self._fabric: Fabric | None = None

    def connect(self) -> None:
        self._wait(self._connected())

    def publish(self, standings: Sequence[HiveStatus]) -> None:
        if standings:
            self._wait(self._publish(standings))

    def _wait(self, work: Coroutine[Any, Any, object]) -> None:
        if self._loop is None:
            self._loop = EventLoopThread()
        self._loop.wait(work)

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            if self._fabric is not None:
                loop.wait(self._fabric.close())
        finally:
            self._fabric = None
            loop.stop()

    async def _connected(self) -> Fabric:
        if self._fabric is None:
            fabric = await connect(self._url).open()
            try:
                await _declare(fabric)
            except BaseException:
                await fabric.close()
                raise
            self._fabric = fabric
        return self._fabric

    async def _publish(self, standings: Sequence[HiveStatus]) -> None:
        fabric = await self._connected()
        posted = []
        for standing in standings:
            outflow = fabric.publisher(status_routing_key(standing.hive_id), exchange=EXCHANGE)
            body = status_document(standing)
            posted.append(await outflow.post(body, message_id=message_id(standing)))
        await asyncio.gather(*posted)


async def _declare(fabric: Fabric) -> None:
    """The exchange, and the way from it to MQTT's."""
    async with await fabric.amqp.channel() as channel:
        await channel.declare_exchange(EXCHANGE, "topic")
        await channel.bind_exchange(TOPIC_EXCHANGE, EXCHANGE, "#")


class NullOccupancyPublisher:
    """Nobody is told."""

    def connect(self) -> None: ...

    def publish(self, standings: Sequence[HiveStatus]) -> None: ...

    def close(self) -> None: ...


def make_publisher(broker: str | None) -> OccupancyPublisher:
    """By the broker's URL; none: to nobody."""
    return NullOccupancyPublisher() if broker is None else BrokerOccupancyPublisher(broker)


def cache_statuses(cache: BlockingCache, standings: Iterable[HiveStatus]) -> None:
    """For those who may not ask the database."""
    values = {
        CACHE_KEYS.key("hive", each.hive_id): json.dumps(
            status_document(each), separators=(",", ":")
        ).encode()
        for each in standings
    }
    if values:
        cache.set_many(values)
