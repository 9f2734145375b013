"""The exchange types direct, fanout, topic and headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.broker.contract import (
    Binding,
    Exchange,
    Message,
    Queue,
    Sink,
)
from penstock.broker.vhost import VirtualHost
from penstock.core.basic_properties import decode_header
from penstock.core.errors import AccessRefused, PreconditionFailed
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


class FederationUpstreamRouter(FanoutRouter):
    """`x-federation-upstream`, which a RabbitMQ that federates an exchange of ours declares here:
    a fanout without messages that have passed `x-max-hops` brokers, or the downstream itself."""

    keyed = False

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        hops = arguments.get("x-max-hops", 1)
        self._max_hops = hops if isinstance(hops, int) else 1
        self._downstream = arguments.get("x-downstream-name")
        self._vhost = arguments.get("x-downstream-vhost")

    def match(self, key: bytes, message: Message) -> Iterable[Sink | Exchange]:
        if b"x-received-from" in message.header:
            passed = (decode_header(message.header).headers or {}).get("x-received-from")
            entries = passed if isinstance(passed, list) else []
            if len(entries) >= self._max_hops or any(map(self._is_downstream, entries)):
                return ()
        return super().match(key, message)

    def _is_downstream(self, entry: Any) -> bool:
        return (
            isinstance(entry, dict)
            and entry.get("cluster-name") == self._downstream
            and entry.get("vhost", self._vhost) == self._vhost
        )


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
