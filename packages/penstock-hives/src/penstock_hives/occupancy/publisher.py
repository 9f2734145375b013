"""Publish occupancy of hives to the broker and the cache.

A change is published to the exchange `occupancy` with routing key `occupancy.<hive>` and cached
under `h1:hive:<id>`, as the same JSON document. The exchange is bound to `amq.topic`, so MQTT
clients receive it on `occupancy/<hive>`. Delivery is at least once: the message id is hive and
version, and a version is complete, so consumers can ignore duplicates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.client import Fabric, connect
from penstock.client.blocking_client import BlockingClient
from penstock_store.cache import BlockingCache, CacheKeys

if TYPE_CHECKING:
    from penstock_hives.occupancy.gold.status import HiveStatus

EXCHANGE: Final = "occupancy"
#: The exchange of MQTT topics.
TOPIC_EXCHANGE: Final = "amq.topic"
#: Version 1 of the cached document.
CACHE_KEYS: Final = CacheKeys("h", 1)


def status_document(status: HiveStatus) -> dict[str, Any]:
    return {
        "hive": status.hive_id,
        "occupancy": status.occupancy,
        "percent": None if status.percent is None else round(status.percent, 1),
        "level": status.level,
        "trend": status.trend,
        "quality": status.quality,
        "as_of": status.as_of.isoformat().replace("+00:00", "Z"),
        "version": status.version,
    }


def status_routing_key(hive: int) -> str:
    return f"{EXCHANGE}.{hive}"


class StatusFabric:
    """The fabric of a broker, with the exchange declared."""

    def __init__(self, url: str) -> None:
        self._fabric = connect(url)

    async def open(self) -> None:
        await self._fabric.open()
        try:
            await _declare(self._fabric)
        except BaseException:
            await self._fabric.close()
            raise

    async def publish(self, statuses: Sequence[HiveStatus]) -> None:
        confirms = []
        for status in statuses:
            sender = self._fabric.publisher(status_routing_key(status.hive_id), exchange=EXCHANGE)
            message_id = f"{status.hive_id}-{status.version}"
            confirms.append(await sender.post(status_document(status), message_id=message_id))
        await asyncio.gather(*confirms)

    async def close(self) -> None:
        await self._fabric.close()


class BlockingStatusFabric(BlockingClient[StatusFabric]):
    def publish(self, statuses: Sequence[HiveStatus]) -> None:
        self._loop.wait(self._client.publish(statuses))


class OccupancyPublisher:
    """Publishes to a broker; connects on first use. Without a URL it does nothing."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._fabric: BlockingStatusFabric | None = None

    def connect(self) -> None:
        """Raises if the broker cannot be reached."""
        if self._url is not None and self._fabric is None:
            self._fabric = BlockingStatusFabric(partial(StatusFabric, self._url)).open()

    def publish(self, statuses: Sequence[HiveStatus]) -> None:
        """Returns when the broker has confirmed all messages."""
        if statuses:
            self.connect()
            if self._fabric is not None:
                self._fabric.publish(statuses)

    def close(self) -> None:
        fabric, self._fabric = self._fabric, None
        if fabric is not None:
            fabric.close()


async def _declare(fabric: Fabric) -> None:
    """The exchange, and its binding to that of MQTT topics."""
    async with await fabric.amqp.channel() as channel:
        await channel.declare_exchange(EXCHANGE, "topic")
        await channel.bind_exchange(TOPIC_EXCHANGE, EXCHANGE, "#")


def cache_statuses(cache: BlockingCache, statuses: Iterable[HiveStatus]) -> None:
    """For readers that do not query the database."""
    values = {
        CACHE_KEYS.key("hive", each.hive_id): json.dumps(
            status_document(each), separators=(",", ":")
        ).encode()
        for each in statuses
    }
    if values:
        cache.set_many(values)
