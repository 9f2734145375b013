"""The exchange types direct, fanout, topic, headers and x-delayed-message."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from penstock.broker.contract import (
    ACCEPTED,
    IN_SYNC,
    LOGGED,
    PERSISTENT,
    Binding,
    Delivery,
    Exchange,
    Message,
    Queue,
    Sink,
)
from penstock.broker.vhost import VirtualHost, directory_name
from penstock.core.basic_properties import decode_header, encode_header
from penstock.core.errors import AccessRefused, PreconditionFailed
from penstock.destinations.exchange import ExchangeRouter, TopicPermissionRouter
from penstock.destinations.message_store import MessageLog
from penstock.destinations.topic_trie import TopicTrie


class DirectRouter:
    """The routing key equals the binding key."""

    keyed = True

    def __init__(self) -> None:
        self._bound: dict[bytes, list[Queue | Exchange]] = {}

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._bound.setdefault(binding.key.encode(), []).append(binding.destination)

    def remove(self, binding: Binding) -> None:
        bound = self._bound[binding.key.encode()]
        bound.remove(binding.destination)
        if not bound:
            del self._bound[binding.key.encode()]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._bound.get(key, ())


class DefaultExchangeRouter:
    """Routes to the queue, or the reply channel, that the routing key names."""

    keyed = True

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost

    def check(self, binding: Binding) -> None:
        raise AccessRefused("operation not permitted on the default exchange")

    def add(self, binding: Binding) -> None:
        self.check(binding)

    def remove(self, binding: Binding) -> None:
        self.check(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        name = key.decode("utf-8", "surrogateescape")
        sink = self._vhost.queues.get(name) or self._vhost.replies.get(name)
        return () if sink is None else (sink,)


class FanoutRouter:
    keyed = True

    def __init__(self) -> None:
        self._bound: Counter[Queue | Exchange] = Counter()

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._bound[binding.destination] += 1

    def remove(self, binding: Binding) -> None:
        self._bound[binding.destination] -= 1
        if not self._bound[binding.destination]:
            del self._bound[binding.destination]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._bound


class TopicRouter:
    keyed = True
    uses_topic_permissions = True

    def __init__(self) -> None:
        self._trie: TopicTrie[Queue | Exchange] = TopicTrie()

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._trie.add(binding.key.encode(), binding.destination)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.key.encode(), binding.destination)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        return self._trie.match(key)

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        return [key.decode("utf-8", "surrogateescape") for key in keys[1:]]

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return (key,)


X_MATCH_VALUES = ("all", "any", "all-with-x", "any-with-x")


class HeadersRouter:
    """The binding's arguments match the message's headers.

    `x-match` is `all` (default) or `any`; these ignore headers that begin with `x-`, unlike
    `all-with-x` and `any-with-x`. An argument without a value matches if the header is present.

    Bindings are found by the message's headers: one with `all` by the argument that the fewest
    others are found by, one with `any` by each of its arguments.
    """

    keyed = False

    def __init__(self) -> None:
        self._index: dict[HeaderKey, dict[Binding, dict[str, Any]]] = {}
        self._unconditional: dict[Binding, None] = {}  #: `all` without arguments
        self._keys: dict[Binding, list[HeaderKey]] = {}

    def check(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if match not in X_MATCH_VALUES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; expected {', '.join(X_MATCH_VALUES)}"
            )

    def add(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        with_x = match.endswith("-with-x")
        wanted = {
            name: value
            for name, value in binding.arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        }
        keys = {_header_key(name, value): {name: value} for name, value in wanted.items()}
        if match.startswith("all"):
            if not keys:
                self._unconditional[binding] = None
                return
            rarest = min(keys, key=lambda key: len(self._index.get(key, ())))
            keys = {rarest: wanted}
        self._keys[binding] = list(keys)
        for key, conditions in keys.items():
            self._index.setdefault(key, {})[binding] = conditions

    def remove(self, binding: Binding) -> None:
        self._unconditional.pop(binding, None)
        for key in self._keys.pop(binding, ()):
            found = self._index[key]
            del found[binding]
            if not found:
                del self._index[key]

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        matched = dict.fromkeys(binding.destination for binding in self._unconditional)
        headers = decode_header(message.header).headers or {}
        for name, value in headers.items():
            for found in (self._index.get((name,)), self._index.get(_header_key(name, value))):
                for binding, wanted in (found or {}).items():
                    if all(
                        each in headers and (value is None or _same(headers[each], value))
                        for each, value in wanted.items()
                    ):
                        matched[binding.destination] = None
        return matched


#: A header and its value, or the header alone if the value cannot be looked up.
HeaderKey = tuple[Any, ...]


def _header_key(name: str, value: Any) -> HeaderKey:
    if value is None or isinstance(value, dict | list | bytearray):
        return (name,)
    return (name, isinstance(value, bool), value)


def _same(left: Any, right: Any) -> bool:
    """Equal, and of one type: the number 1 is neither the text "1" nor true."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


class DelayedRouter:
    """`x-delayed-message`: delays messages with an `x-delay` header, in milliseconds.

    Other messages go to the router of `x-delayed-type`, as in RabbitMQ's plugin.
    """

    keyed = False

    def __init__(self, delayed: DelayedMessages, router: ExchangeRouter) -> None:
        self._delayed = delayed
        self._router = router

    def check(self, binding: Binding) -> None:
        self._router.check(binding)

    def add(self, binding: Binding) -> None:
        self._router.add(binding)

    def remove(self, binding: Binding) -> None:
        self._router.remove(binding)

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if _delay(message) > 0:
            return (self._delayed,)
        return self._router.match(key, message)

    @property
    def uses_topic_permissions(self) -> bool:
        return (
            isinstance(self._router, TopicPermissionRouter) and self._router.uses_topic_permissions
        )

    def topics(self, keys: list[bytes], message: Message) -> Iterable[str]:
        return (
            self._router.topics(keys, message)
            if isinstance(self._router, TopicPermissionRouter)
            else ()
        )

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        return (
            self._router.topics_of(key, arguments)
            if isinstance(self._router, TopicPermissionRouter)
            else ()
        )


class DelayedMessages:
    """Delayed messages, the earliest first. Those of a durable exchange are logged."""

    def __init__(self, vhost: VirtualHost, exchange: str, durable: bool) -> None:
        self.name = ""  # not the name of a queue that dead letters avoid
        self._exchange = exchange
        self._vhost = vhost
        self._due: list[tuple[float, int, Delivery]] = []
        self._position = 0
        self._timer: asyncio.TimerHandle | None = None
        self._store: MessageLog | None = None
        if durable:
            directory = (
                vhost.kernel.directory / "delayed" / directory_name(f"{vhost.name}\0{exchange}")
            )
            self._store = MessageLog(vhost.kernel, directory)
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
        return LOGGED | IN_SYNC if delivery.offset >= 0 else ACCEPTED

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
            self._vhost.kernel.write_batch.call_at(self._due[0][0], self._release)
            if self._due
            else None
        )

    def _release(self) -> None:
        now = self._vhost.kernel.loop.time()
        while self._due and self._due[0][0] <= now:
            delivery = heappop(self._due)[2]
            exchange = self._vhost.exchanges.get(self._exchange)
            if exchange is not None:
                message = _after_delay(delivery.message)
                if delivery.message.spool is not None:
                    message.spool = self._vhost.kernel.spools.relink(delivery.message.spool)
                exchange.accept(message)
            if delivery.offset >= 0:
                assert self._store is not None
                self._store.acknowledge(delivery.offset, delivery.message.spool is not None)
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


def _after_delay(message: Message) -> Message:
    """The message after its delay: `x-delay` is negated, so that consumers see it."""
    properties = decode_header(message.header)
    headers: dict[str, Any] = dict(properties.headers or {})
    headers["x-delay"] = -headers["x-delay"]
    properties.headers = headers
    size = message.size
    return Message(message.route, encode_header(properties, size), message.body, message.flags)
