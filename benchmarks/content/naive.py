"""What a matcher is measured against: going through all subscriptions, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.content.messages import Publication, Subscription
from penstock.content.relations import satisfies


class Naive:
    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._subscriptions = list(enumerate(subscriptions))

    def match(self, publication: Publication) -> list[int]:
        return [key for key, one in self._subscriptions if satisfies(publication, one)]
