"""What a router remembers: advertisements and subscriptions, and the hop each came from.

The two tables of PADRES: advertisements (SRT) are asked with subscriptions, and with publications
for conformance; subscriptions (PRT) with publications and advertisements.

Where brokers form cycles, each advertisement spans a tree of its own, named by its id, and what
neighbours subscribe to counts along the trees they named. Without cycles there is one tree, whose
name is empty. What a hop of this broker subscribes to counts along all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from penstock.content.matching import AdvertisementMatcher, Matcher
from penstock.content.messages import Advertisement, Publication, Subscription
from penstock.overlay.top_k import TopK
from penstock.wire.padres.envelope import PadresEnvelope

#: The class by which the broker that puts publications in order makes itself known.
ORDER_CLASS: Final = "BROKER_ORDER"

#: Ids that were undone and are remembered for a while: a copy may still be on its way round.
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
    """A subscription of one hop's, or a part of a composite one."""

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
        self.trees = trees  #: those it counts along; None for all
        self.composite = composite  #: the id of the composite it is a part of
        self.propagated_filters: set[tuple[str, str]] = (
            set()
        )  #: the neighbours and trees it goes along
        self.top_k: TopK | None = None  #: if it wants the best of what it matches alone

    @property
    def origin(self) -> str:
        """The broker whose client it belongs to."""
        return self.id.partition("-")[0]


class RoutingTables:
    def __init__(self, strict: bool = False) -> None:
        self.advertisements: dict[str, AdvertisementEntry] = {}
        self.subscriptions: dict[tuple[str, str], SubscriptionEntry] = {}  #: by id and hop
        self._advertisement_matcher: AdvertisementMatcher[str] = AdvertisementMatcher(strict)
        self._matcher: Matcher[SubscriptionEntry] = Matcher(strict)
        self._on_neighbour_shutdown: OrderedDict[str, None] = OrderedDict()
        self.order: AdvertisementEntry | None = (
            None  #: of the broker that puts publications in order
        )

    # Advertisements.

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
        if not entry.tree:  # there is one way here only: no copy of it can come later
            return
        self._on_neighbour_shutdown[entry.id] = None
        if len(self._on_neighbour_shutdown) > MAX_WITHDRAWN_IDS:
            self._on_neighbour_shutdown.popitem(last=False)

    def was_withdrawn(self, advertisement: str) -> bool:
        return advertisement in self._on_neighbour_shutdown

    def advertisements_intersecting(
        self, subscription: Subscription
    ) -> Iterator[AdvertisementEntry]:
        """The advertisements that a subscription intersects; what is to be put in order comes
        from the broker that does it, too."""
        for one in self._advertisement_matcher.meeting(subscription):
            yield self.advertisements[one]
        if self.order is not None:
            yield self.order

    def advertisements_matching(self, publication: Publication) -> Iterator[AdvertisementEntry]:
        """The advertisements that a publication conforms to, the first that came first."""
        found = set(self._advertisement_matcher.conforming(publication))
        if len(found) == 1:
            return iter([self.advertisements[found.pop()]])
        return (one for key, one in self.advertisements.items() if key in found)

    # Subscriptions.

    def add_subscription(self, entry: SubscriptionEntry) -> None:
        self._matcher.insert(entry, entry.message)
        self.subscriptions[entry.id, entry.hop] = entry

    def remove_subscription(self, entry: SubscriptionEntry) -> None:
        del self.subscriptions[entry.id, entry.hop]
        self._matcher.remove(entry)

    def subscriptions_matching(self, publication: Publication) -> list[SubscriptionEntry]:
        return self._matcher.match(publication)

    def subscriptions_intersecting(self, advertisement: Advertisement) -> list[SubscriptionEntry]:
        """The subscriptions that an advertisement intersects."""
        return self._matcher.meeting(advertisement)
