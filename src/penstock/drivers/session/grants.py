"""What a session's subscriptions, taken together, grant to a topic.

Overlapping subscriptions bring a message once: at the best quality any of them asks for, with the
identifiers of all. A filter that begins with a wildcard does not see topics that begin with `$`.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.sessions import Grant, Subscription
from penstock.drivers.trie import Trie

#: Answers remembered for one session.
REMEMBERED: Final = 512

#: How a filter begins that does not see topics beginning with `$`.
WILD: Final = ("*", "#")

NOTHING: Final = Grant(-1)
#: For what was promised under a subscription that is gone: as it was published.
AS_PUBLISHED: Final = Grant(2)


def grant_of(subscriptions: list[Subscription]) -> Grant:
    if not subscriptions:
        return NOTHING
    return Grant(
        max(subscription.qos for subscription in subscriptions),
        tuple(sorted(s.identifier for s in subscriptions if s.identifier)),
        any(subscription.as_published for subscription in subscriptions),
    )


class Grants:
    __slots__ = ("_answers", "_not_own", "_trie", "only", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._answers: dict[bytes, Grant] = {}
        self._trie: Trie[Subscription] | None = None  # made when something is to be matched
        #: The answer to all that comes, where there is but one: exchanges send what matches.
        self.only: Grant | None = None
        self._not_own = 0  # subscriptions that do not want what the client itself publishes

    @property
    def spurn_own(self) -> bool:
        """Some subscription does not want what the client itself publishes."""
        return self._not_own > 0

    def add(self, subscription: Subscription) -> None:
        before = self.subscriptions.get(subscription.pattern)
        if before is not None:
            self._not_own -= before.not_own
        self.subscriptions[subscription.pattern] = subscription
        self._not_own += subscription.not_own
        if self._trie is not None:
            self._trie.add(subscription.pattern.encode(), subscription)
        self._changed()

    def remove(self, subscription: Subscription) -> None:
        before = self.subscriptions.pop(subscription.pattern, None)
        if before is not None:
            self._not_own -= before.not_own
        if self._trie is not None:
            self._trie.remove(subscription.pattern.encode(), subscription)
        self._changed()

    def _changed(self) -> None:
        self._answers.clear()
        self.only = None
        if len(self.subscriptions) == 1:
            (subscription,) = self.subscriptions.values()
            if subscription.pattern[:1] not in WILD:
                self.only = grant_of([subscription])

    def of(self, route: bytes) -> Grant:
        """What a message on this route is granted."""
        answer = self._answers.get(route)
        if answer is None:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            answer = self._answers[route] = grant_of(self._matching(route))
        return answer

    def of_own(self, route: bytes) -> Grant:
        """The same for a message of the client's own."""
        return grant_of([found for found in self._matching(route) if not found.not_own])

    def _matching(self, route: bytes) -> list[Subscription]:
        key = route[route[0] + 2 :]
        if self._trie is None:
            self._trie = Trie()
            for subscription in self.subscriptions.values():
                self._trie.add(subscription.pattern.encode(), subscription)
        found = self._trie.match(key)
        if key[:1] == b"$":
            return [match for match in found if match.pattern[:1] not in WILD]
        return found
