"""The subscriptions of a session: by topic filter, and by content."""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import Binding, EffectiveSubscription, Message, TopicSubscription
from penstock.content import Subscription as Wanted
from penstock.content import (
    satisfies,
)
from penstock.content.parser import parse_any_subscription
from penstock.core.basic_properties import encode_shortstr
from penstock.destinations.publications import decode_publication, publication_route
from penstock.destinations.topic_trie import TopicTrie


class SessionSubscriptions:
    __slots__ = ("contents", "topics")

    def __init__(self) -> None:
        self.topics = TopicSubscriptionSet()
        self.contents: ContentSubscriptionSet | None = None  #: few have any

    def __len__(self) -> int:
        return len(self.topics.subscriptions) + len(self.contents or ())

    @property
    def no_local(self) -> bool:
        contents = self.contents
        return self.topics.no_local or (contents is not None and contents.no_local)

    def get(self, pattern: str) -> TopicSubscription | None:
        found = self.topics.subscriptions.get(pattern)
        if found is None and self.contents is not None:
            found = self.contents.subscriptions.get(pattern)
        return found

    def add(self, binding: Binding) -> None:
        subscription = TopicSubscription.of(binding.key, binding.arguments)
        if not subscription.content:
            self.topics.add(subscription)
            return
        if self.contents is None:
            self.contents = ContentSubscriptionSet()
        self.contents.add(subscription, binding.source)

    def remove(self, binding: Binding) -> None:
        subscription = TopicSubscription.of(binding.key, binding.arguments)
        if not subscription.content or self.contents is None:
            self.topics.remove(subscription)
            return
        self.contents.remove(subscription, binding.source)
        if not self.contents:
            self.contents = None


#: Cached results per session.
SUBSCRIPTION_CACHE_SIZE: Final = 512

#: Filters that begin with these do not match topics that begin with `$`.
WILDCARDS: Final = ("*", "#")

NO_SUBSCRIPTION: Final = EffectiveSubscription(-1)
#: For messages of a subscription that was removed: as published.
DEFAULT_SUBSCRIPTION: Final = EffectiveSubscription(2)


def effective_subscription(subscriptions: list[TopicSubscription]) -> EffectiveSubscription:
    if not subscriptions:
        return NO_SUBSCRIPTION
    return EffectiveSubscription(
        max(subscription.qos for subscription in subscriptions),
        tuple(sorted(s.identifier for s in subscriptions if s.identifier)),
        any(subscription.as_published for subscription in subscriptions),
    )


class TopicSubscriptionSet:
    """Subscriptions by topic filter.

    Overlapping subscriptions yield one message, with the highest QoS and all identifiers.
    """

    __slots__ = ("_cache", "_no_local_count", "_trie", "only", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, TopicSubscription] = {}
        self._cache: dict[bytes, EffectiveSubscription] = {}
        self._trie: TopicTrie[TopicSubscription] | None = None  # built at the first match
        #: The result for every message, if there is one subscription: exchanges send only matches.
        self.only: EffectiveSubscription | None = None
        self._no_local_count = 0  # subscriptions with no local

    @property
    def no_local(self) -> bool:
        return self._no_local_count > 0

    def add(self, subscription: TopicSubscription) -> None:
        before = self.subscriptions.get(subscription.pattern)
        if before is not None:
            self._no_local_count -= before.no_local
        self.subscriptions[subscription.pattern] = subscription
        self._no_local_count += subscription.no_local
        if self._trie is not None:
            self._trie.add(subscription.pattern.encode(), subscription)
        self._changed()

    def remove(self, subscription: TopicSubscription) -> None:
        before = self.subscriptions.pop(subscription.pattern, None)
        if before is not None:
            self._no_local_count -= before.no_local
        if self._trie is not None:
            self._trie.remove(subscription.pattern.encode(), subscription)
        self._changed()

    def _changed(self) -> None:
        self._cache.clear()
        self.only = None
        if len(self.subscriptions) == 1:
            (subscription,) = self.subscriptions.values()
            if subscription.pattern[:1] not in WILDCARDS:
                self.only = effective_subscription([subscription])

    def of(self, route: bytes) -> EffectiveSubscription:
        """The effective subscription of a route."""
        found = self._cache.get(route)
        if found is None:
            if len(self._cache) >= SUBSCRIPTION_CACHE_SIZE:
                self._cache.clear()
            found = self._cache[route] = effective_subscription(self._matching(route))
        return found

    def of_own(self, route: bytes) -> EffectiveSubscription:
        """The same for the client's own publishes."""
        return effective_subscription(
            [found for found in self._matching(route) if not found.no_local]
        )

    def _matching(self, route: bytes) -> list[TopicSubscription]:
        key = route[route[0] + 2 :]
        if self._trie is None:
            self._trie = TopicTrie()
            for subscription in self.subscriptions.values():
                self._trie.add(subscription.pattern.encode(), subscription)
        found = self._trie.match(key)
        if key[:1] == b"$":
            return [match for match in found if match.pattern[:1] not in WILDCARDS]
        return found


class ContentSubscriptionSet:
    """Subscriptions by content: bindings of a content exchange, which has matched the message.

    The message is delivered under the name of its class, whatever its routing key was.
    """

    __slots__ = ("_sources", "_wanted", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, TopicSubscription] = {}
        self._wanted: dict[str, tuple[Wanted, ...]] = {}
        self._sources: dict[bytes, int] = {}  # bindings per exchange, by the prefix of its routes

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def no_local(self) -> bool:
        return any(one.no_local for one in self.subscriptions.values())

    def add(self, subscription: TopicSubscription, source: str) -> None:
        self.subscriptions[subscription.pattern] = subscription
        self._wanted[subscription.pattern] = tuple(
            parse_any_subscription(subscription.content).parts()
        )
        start = encode_shortstr(source)
        self._sources[start] = self._sources.get(start, 0) + 1

    def remove(self, subscription: TopicSubscription, source: str) -> None:
        if self.subscriptions.pop(subscription.pattern, None) is None:
            return
        del self._wanted[subscription.pattern]
        start = encode_shortstr(source)
        self._sources[start] -= 1
        if not self._sources[start]:
            del self._sources[start]

    def routes_from(self, route: bytes) -> bool:
        """Whether a message with this route came from a content exchange."""
        return route[: route[0] + 1] in self._sources

    def effective(self, message: Message, own: bool = False) -> EffectiveSubscription:
        publication = decode_publication(message)
        if publication is None:
            return DEFAULT_SUBSCRIPTION
        found = [
            one
            for pattern, one in self.subscriptions.items()
            if not (own and one.no_local)
            and any(satisfies(publication, part) for part in self._wanted[pattern])
        ]
        if not found and not own:  # of a subscription that was removed
            return DEFAULT_SUBSCRIPTION
        return effective_subscription(found)

    def with_class_route(self, message: Message) -> Message:
        publication = decode_publication(message)
        route = (
            message.route
            if publication is None
            else publication_route(message.exchange, publication.class_name)
        )
        if route == message.route:
            return message
        named = Message(route, message.header, message.body, message.flags, message.more)
        named.spool = message.spool
        return named
