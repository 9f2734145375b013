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

from penstock.content.matching import Advertisements, Matcher
from penstock.content.messages import Advertisement, Publication, Subscription
from penstock.overlay.best import Best
from penstock.wire.padres.envelope import Envelope

#: The class by which the broker that puts publications in order makes itself known.
ORDER: Final = "BROKER_ORDER"

#: Ids that were undone and are remembered for a while: a copy may still be on its way round.
GONE: Final = 100_000


class Advertised:
    __slots__ = ("envelope", "hop", "id", "message", "tree")

    def __init__(self, envelope: Envelope, message: Advertisement, hop: str, tree: str) -> None:
        self.id = envelope.id
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.tree = tree


class Wanted:
    """A subscription of one hop's, or a part of a composite one."""

    __slots__ = ("best", "composite", "envelope", "hop", "id", "message", "outlets", "trees")

    def __init__(
        self,
        envelope: Envelope,
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
        self.outlets: set[tuple[str, str]] = set()  #: the neighbours and trees it goes along
        self.best: Best | None = None  #: if it wants the best of what it matches alone

    @property
    def origin(self) -> str:
        """The broker whose client it belongs to."""
        return self.id.partition("-")[0]


class Tables:
    def __init__(self, strict: bool = False) -> None:
        self.advertised: dict[str, Advertised] = {}
        self.wanted: dict[tuple[str, str], Wanted] = {}  #: by id and hop
        self._advertisements: Advertisements[str] = Advertisements(strict)
        self._subscriptions: Matcher[Wanted] = Matcher(strict)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self.order: Advertised | None = None  #: of the broker that puts publications in order

    # Advertisements.

    def add_advertisement(self, entry: Advertised) -> None:
        self._advertisements.insert(entry.id, entry.message)
        self.advertised[entry.id] = entry
        if entry.message.class_name == ORDER:
            self.order = entry

    def remove_advertisement(self, entry: Advertised) -> None:
        del self.advertised[entry.id]
        self._advertisements.remove(entry.id)
        if self.order is entry:
            self.order = None
        if not entry.tree:  # there is one way here only: no copy of it can come later
            return
        self._gone[entry.id] = None
        if len(self._gone) > GONE:
            self._gone.popitem(last=False)

    def was_undone(self, advertisement: str) -> bool:
        return advertisement in self._gone

    def offering(self, subscription: Subscription) -> Iterator[Advertised]:
        """The advertisements that a subscription intersects; what is to be put in order comes
        from the broker that does it, too."""
        for one in self._advertisements.meeting(subscription):
            yield self.advertised[one]
        if self.order is not None:
            yield self.order

    def announcing(self, publication: Publication) -> Iterator[Advertised]:
        """The advertisements that a publication conforms to, the first that came first."""
        found = set(self._advertisements.conforming(publication))
        if len(found) == 1:
            return iter([self.advertised[found.pop()]])
        return (one for key, one in self.advertised.items() if key in found)

    # Subscriptions.

    def add_subscription(self, entry: Wanted) -> None:
        self._subscriptions.insert(entry, entry.message)
        self.wanted[entry.id, entry.hop] = entry

    def remove_subscription(self, entry: Wanted) -> None:
        del self.wanted[entry.id, entry.hop]
        self._subscriptions.remove(entry)

    def wanting(self, publication: Publication) -> list[Wanted]:
        return self._subscriptions.match(publication)

    def asking(self, advertisement: Advertisement) -> list[Wanted]:
        """The subscriptions that an advertisement intersects."""
        return self._subscriptions.meeting(advertisement)
