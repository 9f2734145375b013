"""Live figures for whoever listens: to the broker, and to the cache that pages are served from.

A change of a hive is published to the exchange `occupancy` with `occupancy.<hive>` as its key, and
kept in the cache under `h1:hive:<id>`. Both have the same document. What the exchange gets goes on
to `amq.topic`, where MQTT clients find it, and browsers with them: `occupancy/<hive>`. It is told
at least once: a message bears the hive and its version as its id, and who has seen that version
has seen all of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from penstock.client import Fabric, connect
from penstock.client.blocking.loop import LoopThread
from penstock.hives.gold.standing import Standing
from penstock.store.cache import BlockingCache, Keys

EXCHANGE: Final = "occupancy"
#: Where MQTT's topics are.
TOPICS: Final = "amq.topic"
#: The first form of a hive's document.
KEYS: Final = Keys("h", 1)


class Publications(Protocol):
    """Where changes are told."""

    def connect(self) -> None:
        """Raises unless it can be told anything."""

    def publish(self, standings: Sequence[Standing]) -> None:
        """Returns when all of it is safe."""

    def close(self) -> None: ...


def document(standing: Standing) -> dict[str, Any]:
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


def key(hive: int) -> str:
    return f"{EXCHANGE}.{hive}"


def message_id(standing: Standing) -> str:
    return f"{standing.hive_id}-{standing.version}"


class BrokerPublications:
    """To a broker, which is connected to when there is something to say."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop: LoopThread | None = None
        self._fabric: Fabric | None = None

    def connect(self) -> None:
        self._wait(self._connected())

    def publish(self, standings: Sequence[Standing]) -> None:
        if standings:
            self._wait(self._publish(standings))

    def _wait(self, work: Coroutine[Any, Any, object]) -> None:
        if self._loop is None:
            self._loop = LoopThread()
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
                await _lay(fabric)
            except BaseException:
                await fabric.close()
                raise
            self._fabric = fabric
        return self._fabric

    async def _publish(self, standings: Sequence[Standing]) -> None:
        fabric = await self._connected()
        posted = []
        for standing in standings:
            outflow = fabric.publisher(key(standing.hive_id), exchange=EXCHANGE)
            body = document(standing)
            posted.append(await outflow.post(body, message_id=message_id(standing)))
        await asyncio.gather(*posted)


async def _lay(fabric: Fabric) -> None:
    """The exchange, and the way from it to MQTT's."""
    async with fabric.amqp.channel() as channel:
        figures = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
        topics = await channel.get_exchange(TOPICS, ensure=False)
        await topics.bind(figures, "#")


class NoPublications:
    """Nobody is told."""

    def connect(self) -> None: ...

    def publish(self, standings: Sequence[Standing]) -> None: ...

    def close(self) -> None: ...


def publications_to(broker: str | None) -> Publications:
    """By the broker's URL; none: to nobody."""
    return NoPublications() if broker is None else BrokerPublications(broker)


def keep(cache: BlockingCache, standings: Iterable[Standing]) -> None:
    """For those who may not ask the database."""
    values = {
        KEYS.key("hive", each.hive_id): json.dumps(document(each), separators=(",", ":")).encode()
        for each in standings
    }
    if values:
        cache.set_many(values)
