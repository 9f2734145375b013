"""What a session's subscriptions by content grant to a publication.

They are bindings of a content exchange, which has decided that the session wants the message; which
of the subscriptions want it, and so at which quality, is seen here. Whatever key it was published
with, a subscriber gets it under the name of its class.
"""

from __future__ import annotations

from penstock.broker.contract import Message
from penstock.broker.sessions import Grant, Subscription
from penstock.content import Composite, parse_composite, parse_subscription, satisfies
from penstock.content import Subscription as Wanted
from penstock.core.properties import shortstr
from penstock.drivers.routers.publications import publication_of, route_of
from penstock.drivers.session.grants import AS_PUBLISHED, grant_of


class Contents:
    __slots__ = ("_sources", "_wanted", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._wanted: dict[str, tuple[Wanted, ...]] = {}
        self._sources: dict[bytes, int] = {}  # how a route begins, and how many lead from there

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def spurn_own(self) -> bool:
        return any(one.not_own for one in self.subscriptions.values())

    def add(self, subscription: Subscription, source: str) -> None:
        self.subscriptions[subscription.pattern] = subscription
        self._wanted[subscription.pattern] = _parts(subscription.content)
        start = shortstr(source)
        self._sources[start] = self._sources.get(start, 0) + 1

    def remove(self, subscription: Subscription, source: str) -> None:
        if self.subscriptions.pop(subscription.pattern, None) is None:
            return
        del self._wanted[subscription.pattern]
        start = shortstr(source)
        self._sources[start] -= 1
        if not self._sources[start]:
            del self._sources[start]

    def brings(self, route: bytes) -> bool:
        """Whether a message on this route came by content."""
        return route[: route[0] + 1] in self._sources

    def grant(self, message: Message, own: bool = False) -> Grant:
        publication = publication_of(message)
        if publication is None:
            return AS_PUBLISHED
        found = [
            one
            for pattern, one in self.subscriptions.items()
            if not (own and one.not_own)
            and any(satisfies(publication, part) for part in self._wanted[pattern])
        ]
        if not found and not own:  # promised under a subscription that is gone
            return AS_PUBLISHED
        return grant_of(found)

    def addressed(self, message: Message) -> Message:
        publication = publication_of(message)
        route = (
            message.route
            if publication is None
            else route_of(message.exchange, publication.class_name)
        )
        if route == message.route:
            return message
        named = Message(route, message.header, message.body, message.flags, message.more)
        named.spool = message.spool
        return named


def _parts(text: str) -> tuple[Wanted, ...]:
    wanted: Composite | Wanted = (
        parse_composite(text) if text.lstrip().startswith("{") else parse_subscription(text)
    )
    return tuple(wanted.parts()) if isinstance(wanted, Composite) else (wanted,)
