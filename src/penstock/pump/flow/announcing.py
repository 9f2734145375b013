"""Posts and reports to a broker.

An announcement is safe when its awaitable returns; several may be under way at a time. With `split`
the same fingerprint always reaches the same of several exchanges, so that winnows can share the
work.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from penstock.client import Fabric
from penstock.pump.flow.hearing import over_mqtt
from penstock.pump.flow.letter import Letter
from penstock.pump.posts.post import Post
from penstock.pump.posts.reports import PREFIX, Report, write_report
from penstock.pump.posts.spelling import Spelled, Spelling
from penstock.pump.posts.topics import mqtt_topic, routing_key, topic_words


@dataclass(frozen=True, slots=True)
class Address:
    """Where announcements go."""

    url: str
    exchange: str
    prefix: str | None = None  #: in place of the spelling's own
    subtopic: str | None = None  #: in place of the directories
    name_in_topic: bool = False
    split: int = 0
    ttl: float | None = None  #: seconds after which the broker may forget it


class Announcing:
    def __init__(self, fabric: Fabric, address: Address, spelling: Spelling) -> None:
        self._fabric = fabric
        self._address = address
        self._spelling = spelling
        self._mqtt = over_mqtt(address.url)

    async def announce(self, post: Post) -> Awaitable[None]:
        """Returns when there is room for it; await the result to know that it is safe."""
        exchange, topic, spelled = self.addressed(post)
        return await self._post(exchange, topic, spelled.body, spelled.headers)

    def addressed(self, post: Post) -> tuple[str, str, Spelled]:
        """An announcement as it travels: its exchange, its topic, its body and headers."""
        address = self._address
        if address.subtopic is not None:
            words = address.subtopic.split(".")
        else:
            words = topic_words(post.relpath, with_name=address.name_in_topic)
        exchange = address.exchange
        if address.split > 1:
            exchange += f"{shard(post, address.split):02d}"
        prefix = address.prefix or self._spelling.prefix
        return exchange, self._topic(exchange, prefix, words), self._spelling.encode(post)

    @property
    def ttl(self) -> float | None:
        return self._address.ttl

    async def report(self, report: Report) -> Awaitable[None]:
        words = topic_words(report.post.relpath, with_name=self._address.name_in_topic)
        exchange, spelled = self._address.exchange, write_report(report)
        topic = self._topic(exchange, PREFIX, words)
        return await self._post(exchange, topic, spelled.body, spelled.headers)

    async def repeat(self, letter: Letter, post: Post | None = None) -> Awaitable[None]:
        """The same message again, as it came, to our exchange."""
        exchange = self._address.exchange
        if self._address.split > 1 and post is not None:
            exchange += f"{shard(post, self._address.split):02d}"
        return await self._post(exchange, letter.topic, letter.payload(), letter.headers)

    def _topic(self, exchange: str, prefix: str, words: list[str]) -> str:
        if self._mqtt:
            return mqtt_topic(exchange, prefix, words)
        return routing_key(prefix, words)

    async def _post(self, exchange: str, topic: str, body: Any, headers: Any) -> Awaitable[None]:
        if self._mqtt:
            outflow = self._fabric.publisher(topic)
        else:
            outflow = self._fabric.publisher(topic, exchange=exchange)
        return await outflow.post(body, headers=headers or None, ttl=self._address.ttl)


def shard(post: Post, count: int) -> int:
    """Which of several a fingerprint belongs to; as Sarracenia computes it."""
    return sum(str(post.sum or post.relpath).encode()) % count
