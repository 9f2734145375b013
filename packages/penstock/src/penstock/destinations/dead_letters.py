"""Dead-lettering with RabbitMQ's `x-death` header: one entry per queue and reason, the latest
first, with a count. A message in a cycle without a rejection is dropped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.broker.contract import ACCEPTED, EXPIRES, Message
from penstock.broker.declarations import QueueLimits
from penstock.broker.vhost import VirtualHost
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import WireSyntaxError


class DeadLetterPublisher:
    __slots__ = ("_limits", "_queue", "_vhost")

    def __init__(self, vhost: VirtualHost, queue: str, limits: QueueLimits) -> None:
        self._vhost = vhost
        self._queue = queue
        self._limits = limits

    def send(self, message: Message, reason: str) -> int:
        """Publish to the dead-letter exchange, if there is one; LOGGED if the message is stored
        there."""
        name = self._limits.dead_letter_exchange
        exchange = None if name is None else self._vhost.exchanges.get(name)
        if exchange is None:
            return ACCEPTED
        try:
            properties = decode_header(message.header)
        except WireSyntaxError:  # an invalid headers table cannot be extended
            return ACCEPTED
        headers = properties.headers = dict(properties.headers or {})
        deaths = _deaths(headers)
        key = self._limits.dead_letter_key
        self._record(message, properties, deaths, reason)
        if key is not None:
            headers.pop("CC", None)
        dead = Message(
            encode_route(exchange.name, message.routing_key if key is None else key),
            encode_header(properties, message.size),
            message.body,
            message.flags & ~EXPIRES,
        )
        if message.spool is not None:
            dead.spool = self._vhost.kernel.spools.relink(message.spool)
        self._vhost.kernel.metrics.dead_lettered += 1
        return exchange.accept(dead, avoid=_circular(deaths))

    def _record(
        self,
        message: Message,
        properties: BasicProperties,
        deaths: list[dict[str, Any]],
        reason: str,
    ) -> None:
        headers = properties.headers
        assert headers is not None
        for index, death in enumerate(deaths):
            if death["queue"] == self._queue and death["reason"] == reason:
                del deaths[index]
                death["count"] += 1
                break
        else:
            keys = [message.routing_key, *(headers.get("CC") or [])]
            death = {
                "count": 1,
                "exchange": message.exchange,
                "queue": self._queue,
                "reason": reason,
                "routing-keys": keys,
                "time": datetime.now(UTC).replace(microsecond=0),
            }
            if properties.expiration is not None:
                death["original-expiration"] = properties.expiration
        deaths.insert(0, death)
        properties.expiration = None
        headers["x-death"] = deaths
        headers.setdefault("x-first-death-exchange", message.exchange)
        headers.setdefault("x-first-death-queue", self._queue)
        headers.setdefault("x-first-death-reason", reason)


def _deaths(headers: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries so far; invalid ones, from clients, are ignored."""
    deaths = headers.get("x-death")
    if not isinstance(deaths, list):
        return []
    known = {"queue": str, "reason": str, "count": int}
    return [
        dict(death)
        for death in deaths
        if isinstance(death, dict)
        and all(isinstance(death.get(field), kind) for field, kind in known.items())
    ]


def _circular(deaths: list[dict[str, Any]]) -> frozenset[str]:
    """Queues in which it died without a rejection since: it would cycle forever."""
    circular = set()
    for death in deaths:
        if death["reason"] == "rejected":
            break
        circular.add(death["queue"])
    return frozenset(circular)
