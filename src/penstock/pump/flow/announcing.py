"""Posts and reports to a broker.

Whoever announces goes on when it is safe; many do at a time. With `split` the same fingerprint
always reaches the same of several exchanges, so that winnows can share the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.body import encode_body
from penstock.pump.flow.exchanges import Outgoing, Outward
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
    persistent: bool = True  #: it outlives the broker's restart


class Announcing:
    def __init__(self, sending: Outward, address: Address, spelling: Spelling) -> None:
        self._sending = sending
        self._address = address
        self._spelling = spelling
        self._mqtt = over_mqtt(address.url)

    async def announce(self, post: Post) -> None:
        """Returns when it is safe."""
        await self._sending.send(self.addressed(post))

    def addressed(self, post: Post) -> Outgoing:
        """An announcement as it travels."""
        address = self._address
        if address.subtopic is not None:
            words = address.subtopic.split(".")
        else:
            words = topic_words(post.relpath, with_name=address.name_in_topic)
        prefix = address.prefix or self._spelling.prefix
        return self._written(self._exchange(post), prefix, words, self._spelling.encode(post))

    async def report(self, report: Report) -> None:
        words = topic_words(report.post.relpath, with_name=self._address.name_in_topic)
        exchange = self._address.exchange
        await self._sending.send(self._written(exchange, PREFIX, words, write_report(report)))

    async def repeat(self, letter: Letter, post: Post | None = None) -> None:
        """The same message again, as it came, to our exchange."""
        exchange = self._address.exchange if post is None else self._exchange(post)
        written = (letter.topic, letter.body, letter.content_type(), letter.headers)
        await self._sending.send(self._outgoing(exchange, *written))

    def _exchange(self, post: Post) -> str:
        exchange, split = self._address.exchange, self._address.split
        return f"{exchange}{shard(post, split):02d}" if split > 1 else exchange

    def _written(self, exchange: str, prefix: str, words: list[str], spelled: Spelled) -> Outgoing:
        if self._mqtt:
            topic = mqtt_topic(exchange, prefix, words)
        else:
            topic = routing_key(prefix, words)
        body, kind = encode_body(spelled.body)
        return self._outgoing(exchange, topic, body, kind, spelled.headers)

    def _outgoing(
        self, exchange: str, topic: str, body: bytes, kind: str | None, headers: Mapping[str, Any]
    ) -> Outgoing:
        ttl, persistent = self._address.ttl, self._address.persistent
        return Outgoing(exchange, topic, body, kind, headers, ttl, persistent)


def shard(post: Post, count: int) -> int:
    """Which of several a fingerprint belongs to; as Sarracenia computes it."""
    return sum(str(post.sum or post.relpath).encode()) % count
