"""What a session has asked for: topics by patterns, and publications by what they say."""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import Binding, EffectiveSubscription, Message, TopicSubscription
from penstock.content import (
    CompositeSubscription,
    parse_composite,
    parse_subscription,
    satisfies,
)
from penstock.content import Subscription as Wanted
from penstock.core.basic_properties import encode_shortstr
from penstock.destinations.publications import decode_publication, publication_route
from penstock.destinations.topic_trie import TopicTrie


class SessionSubscriptions:
    __slots__ = ("contents", "grants")

    def __init__(self) -> None:
        self.grants = TopicSubscriptionSet()
        self.contents: ContentSubscriptionSet | None = None  #: few have any

    def __len__(self) -> int:
        return len(self.grants.subscriptions) + len(self.contents or ())

    @property
    def no_local(self) -> bool:
        """Some do not want what the client itself publishes."""
        contents = self.contents
        return self.grants.no_local or (contents is not None and contents.no_local)

    def get(self, pattern: str) -> TopicSubscription | None:
        found = self.grants.subscriptions.get(pattern)
        if found is None and self.contents is not None:
            found = self.contents.subscriptions.get(pattern)
        return found

    def add(self, binding: Binding) -> None:
        subscription = TopicSubscription.of(binding.key, binding.arguments)
        if not subscription.content:
            self.grants.add(subscription)
            return
        if self.contents is None:
            self.contents = ContentSubscriptionSet()
        self.contents.add(subscription, binding.source)

    def remove(self, binding: Binding) -> None:
        subscription = TopicSubscription.of(binding.key, binding.arguments)
        if not subscription.content or self.contents is None:
            self.grants.remove(subscription)
            return
        self.contents.remove(subscription, binding.source)
        if not self.contents:
            self.contents = None


# What a session's subscriptions, taken together, grant to a topic.
#
# Overlapping subscriptions bring a message once: at the best quality any of them asks for, with the
# identifiers of all. A filter that begins with a wildcard does not see topics that begin with `$`.

#: Answers remembered for one session.
SUBSCRIPTION_CACHE_SIZE: Final = 512

#: How a filter begins that does not see topics beginning with `$`.
WILDCARDS: Final = ("*", "#")

NO_SUBSCRIPTION: Final = EffectiveSubscription(-1)
#: For what was promised under a subscription that is gone: as it was published.
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
    __slots__ = ("_answers", "_no_local_count", "_trie", "only", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, TopicSubscription] = {}
        self._answers: dict[bytes, EffectiveSubscription] = {}
        self._trie: TopicTrie[TopicSubscription] | None = (
            None  # made when something is to be matched
        )
        #: The answer to all that comes, where there is but one: exchanges send what matches.
        self.only: EffectiveSubscription | None = None
        self._no_local_count = 0  # subscriptions that do not want what the client itself publishes

    @property
    def no_local(self) -> bool:
        """Some subscription does not want what the client itself publishes."""
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
        self._answers.clear()
        self.only = None
        if len(self.subscriptions) == 1:
            (subscription,) = self.subscriptions.values()
            if subscription.pattern[:1] not in WILDCARDS:
                self.only = effective_subscription([subscription])

    def of(self, route: bytes) -> EffectiveSubscription:
        """What a message on this route is granted."""
        answer = self._answers.get(route)
        if answer is None:
            if len(self._answers) >= SUBSCRIPTION_CACHE_SIZE:
                self._answers.clear()
            answer = self._answers[route] = effective_subscription(self._matching(route))
        return answer

    def of_own(self, route: bytes) -> EffectiveSubscription:
        """The same for a message of the client's own."""
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


# What a session's subscriptions by content grant to a publication.
#
# They are bindings of a content exchange, which has decided that the session wants the message;
# which of the subscriptions want it, and so at which quality, is seen here. Whatever key it was
# published with, a subscriber gets it under the name of its class.


class ContentSubscriptionSet:
    __slots__ = ("_sources", "_wanted", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, TopicSubscription] = {}
        self._wanted: dict[str, tuple[Wanted, ...]] = {}
        self._sources: dict[bytes, int] = {}  # how a route begins, and how many lead from there

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def no_local(self) -> bool:
        return any(one.no_local for one in self.subscriptions.values())

    def add(self, subscription: TopicSubscription, source: str) -> None:
        self.subscriptions[subscription.pattern] = subscription
        self._wanted[subscription.pattern] = _parts(subscription.content)
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

    def brings(self, route: bytes) -> bool:
        """Whether a message on this route came by content."""
        return route[: route[0] + 1] in self._sources

    def grant(self, message: Message, own: bool = False) -> EffectiveSubscription:
        publication = decode_publication(message)
        if publication is None:
            return DEFAULT_SUBSCRIPTION
        found = [
            one
            for pattern, one in self.subscriptions.items()
            if not (own and one.no_local)
            and any(satisfies(publication, part) for part in self._wanted[pattern])
        ]
        if not found and not own:  # promised under a subscription that is gone
            return DEFAULT_SUBSCRIPTION
        return effective_subscription(found)

    def addressed(self, message: Message) -> Message:
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


def _parts(text: str) -> tuple[Wanted, ...]:
    wanted: CompositeSubscription | Wanted = (
        parse_composite(text) if text.lstrip().startswith("{") else parse_subscription(text)
    )
    return tuple(wanted.parts()) if isinstance(wanted, CompositeSubscription) else (wanted,)
