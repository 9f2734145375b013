"""The routing tables of PADRES: advertisements (SRT) and subscriptions (PRT), with their hops.

Advertisements are matched with subscriptions, and with publications for conformance; subscriptions
with publications and advertisements. With cycles each advertisement has its own tree, named by its
id, and subscriptions of neighbours count along the trees they named. Without cycles there is one
tree with an empty name. Subscriptions of local hops count along all trees.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from penstock.content.matching import AdvertisementMatcher, Matcher
from penstock.content.messages import Advertisement, Publication, Subscription
from penstock.overlay.top_k import TopK
from penstock.wire.padres.envelope import PadresEnvelope

#: The class that the ordering broker advertises.
ORDER_CLASS: Final = "BROKER_ORDER"

#: Remembered ids of withdrawn advertisements: a copy may still be in transit.
MAX_WITHDRAWN_IDS: Final = 100_000


class AdvertisementEntry:
    __slots__ = ("envelope", "hop", "id", "message", "tree")

    def __init__(
        self, envelope: PadresEnvelope, message: Advertisement, hop: str, tree: str
    ) -> None:
        self.id = envelope.id
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.tree = tree


class SubscriptionEntry:
    """A subscription of one hop, or a part of a composite."""

    __slots__ = (
        "composite",
        "envelope",
        "hop",
        "id",
        "message",
        "propagated_filters",
        "top_k",
        "trees",
    )

    def __init__(
        self,
        envelope: PadresEnvelope,
        message: Subscription,
        hop: str,
        trees: set[str] | None,
        composite: str = "",
    ) -> None:
        self.id = envelope.id
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.trees = trees  #: None for all
        self.composite = composite  #: the id of its composite
        self.propagated_filters: set[tuple[str, str]] = set()  #: neighbours and trees
        self.top_k: TopK | None = None

    @property
    def origin(self) -> str:
        """The subscriber's broker."""
        return self.id.partition("-")[0]


class RoutingTables:
    def __init__(self, strict: bool = False) -> None:
        self.advertisements: dict[str, AdvertisementEntry] = {}
        self.subscriptions: dict[tuple[str, str], SubscriptionEntry] = {}  #: by id and hop
        self._advertisement_matcher: AdvertisementMatcher[str] = AdvertisementMatcher(strict)
        self._matcher: Matcher[SubscriptionEntry] = Matcher(strict)
        self._withdrawn: OrderedDict[str, None] = OrderedDict()
        self.order: AdvertisementEntry | None = None  #: of the ordering broker

    def add_advertisement(self, entry: AdvertisementEntry) -> None:
        self._advertisement_matcher.insert(entry.id, entry.message)
        self.advertisements[entry.id] = entry
        if entry.message.class_name == ORDER_CLASS:
            self.order = entry

    def remove_advertisement(self, entry: AdvertisementEntry) -> None:
        del self.advertisements[entry.id]
        self._advertisement_matcher.remove(entry.id)
        if self.order is entry:
            self.order = None
        if not entry.tree:  # there is one route: no copy can arrive later
            return
        self._withdrawn[entry.id] = None
        if len(self._withdrawn) > MAX_WITHDRAWN_IDS:
            self._withdrawn.popitem(last=False)

    def was_withdrawn(self, advertisement: str) -> bool:
        return advertisement in self._withdrawn

    def advertisements_intersecting(
        self, subscription: Subscription
    ) -> Iterator[AdvertisementEntry]:
        """Advertisements that intersect a subscription, and that of the ordering broker."""
        for one in self._advertisement_matcher.intersecting(subscription):
            yield self.advertisements[one]
        if self.order is not None:
            yield self.order

    def advertisements_matching(self, publication: Publication) -> Iterator[AdvertisementEntry]:
        """Advertisements that a publication conforms to, in order of arrival."""
        found = set(self._advertisement_matcher.conforming(publication))
        if len(found) == 1:
            return iter([self.advertisements[found.pop()]])
        return (one for key, one in self.advertisements.items() if key in found)

    def add_subscription(self, entry: SubscriptionEntry) -> None:
        self._matcher.insert(entry, entry.message)
        self.subscriptions[entry.id, entry.hop] = entry

    def remove_subscription(self, entry: SubscriptionEntry) -> None:
        del self.subscriptions[entry.id, entry.hop]
        self._matcher.remove(entry)

    def subscriptions_matching(self, publication: Publication) -> list[SubscriptionEntry]:
        return self._matcher.match(publication)

    def subscriptions_intersecting(self, advertisement: Advertisement) -> list[SubscriptionEntry]:
        return self._matcher.intersecting(advertisement)
