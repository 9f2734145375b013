"""Delayed: a message with an `x-delay` header waits that many milliseconds before it is routed.

The exchange type is `x-delayed-message`, the rule behind it `x-delayed-type`, as in RabbitMQ's
plugin. What waits in a durable exchange is in the log and survives the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from penstock.broker.contract import PERSISTENT, Delivery, Message
from penstock.broker.destinations import LOGGED, TAKEN, Binding, Exchange, Sink
from penstock.broker.paths import folder
from penstock.core.properties import decode_header, encode_header
from penstock.drivers.exchange import Router, TopicRouter
from penstock.drivers.store import Store

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.vhost import VirtualHost


class Delayed:
    """A router that puts what is to wait into a line, and leaves the rest to the rule behind."""

    keyed = False

    def __init__(self, line: DelayLine, rule: Router) -> None:
        self._line = line
        self._rule = rule

    def check(self, binding: Binding) -> None:
        self._rule.check(binding)

    def add(self, binding: Binding) -> None:
        self._rule.add(binding)

    def remove(self, binding: Binding) -> None:
        self._rule.remove(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if _delay(message) > 0:
            return (self._line,)
        return self._rule.match(key, message)

    @property
    def topical(self) -> bool:
        return isinstance(self._rule, TopicRouter) and self._rule.topical

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        return self._rule.topics(keys, message) if isinstance(self._rule, TopicRouter) else ()

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return self._rule.topics_of(key, arguments) if isinstance(self._rule, TopicRouter) else ()


class DelayLine:
    """Messages that wait for their time, the earliest first."""

    def __init__(self, vhost: VirtualHost, exchange: str, durable: bool) -> None:
        self.name = ""  # no queue's: a dead letter that avoids a queue may still wait here
        self._exchange = exchange
        self._vhost = vhost
        self._due: list[tuple[float, int, Delivery]] = []
        self._position = 0
        self._timer: asyncio.TimerHandle | None = None
        self._store: Store | None = None
        if durable:
            directory = vhost.kernel.directory / "delayed" / folder(f"{vhost.name}\0{exchange}")
            self._store = Store(vhost.kernel, directory)
            now = self._store.log.now()
            for record in self._store.records():
                waited = now - record.timestamp
                self._wait(Delivery(record.message, 0, record.offset), waited)

    def __len__(self) -> int:
        return len(self._due)

    def push(self, message: Message) -> int:
        delivery = Delivery(message, 0)
        if self._store is not None and message.flags & PERSISTENT:
            delivery.offset = self._store.append(message)
        self._wait(delivery, 0)
        return LOGGED if delivery.offset >= 0 else TAKEN

    def _wait(self, delivery: Delivery, waited: int) -> None:
        remaining = max(0, _delay(delivery.message) - waited) / 1000
        due = self._vhost.kernel.loop.time() + remaining
        self._position += 1
        heappush(self._due, (due, self._position, delivery))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = (
            self._vhost.kernel.turn.at(self._due[0][0], self._release) if self._due else None
        )

    def _release(self) -> None:
        now = self._vhost.kernel.loop.time()
        while self._due and self._due[0][0] <= now:
            delivery = heappop(self._due)[2]
            exchange = self._vhost.exchanges.get(self._exchange)
            if exchange is not None:
                message = _waited(delivery.message)
                if delivery.message.spool is not None:
                    message.spool = self._vhost.kernel.spools.keep(delivery.message.spool)
                exchange.accept(message)
            if delivery.offset >= 0:
                assert self._store is not None
                self._store.done(delivery.offset, delivery.message.spool is not None)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._store is not None:
            self._store.close()

    def delete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._store is not None:
            self._store.delete()


def _delay(message: Message) -> int:
    if b"x-delay" not in message.header:
        return 0
    delay = (decode_header(message.header).headers or {}).get("x-delay", 0)
    return delay if isinstance(delay, int) else 0


def _waited(message: Message) -> Message:
    """The message on its second way through: its delay is negated, so that consumers see it."""
    properties = decode_header(message.header)
    headers: dict[str, Any] = dict(properties.headers or {})
    headers["x-delay"] = -headers["x-delay"]
    properties.headers = headers
    size = message.size
    return Message(message.route, encode_header(properties, size), message.body, message.flags)
