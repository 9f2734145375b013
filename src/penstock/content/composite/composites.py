"""Many composite subscriptions: what a publication completes.

Parts of all composites lie in one matcher; a composite is looked at only when one of its parts is
satisfied. What waits for partners is bounded for each composite by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

from penstock.content.bindings import bind
from penstock.content.composite.network import Network
from penstock.content.composite.partial import Partial
from penstock.content.composite.policies import UNBOUNDED_TIME, Bound, Policy
from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.matching.matcher import Matcher
from penstock.content.messages import Composite, Publication

K = TypeVar("K", bound=Hashable)


class Composites(Generic[K]):
    """Composite subscriptions by a key of the caller's."""

    def __init__(self, *, strict: bool = False, clock: Callable[[], float] = monotonic) -> None:
        self._strict = strict
        self._clock = clock
        self._parts: Matcher[tuple[K, int]] = Matcher(strict)
        self._composites: dict[K, tuple[Composite, Network]] = {}
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._composites)

    def __contains__(self, key: object) -> bool:
        return key in self._composites

    def __getitem__(self, key: K) -> Composite:
        return self._composites[key][0]

    def insert(
        self,
        key: K,
        composite: Composite,
        policy: Policy = Policy.REMAIN,
        bound: Bound = UNBOUNDED_TIME,
    ) -> None:
        if key in self._composites:
            raise DuplicateId(f"there is a composite subscription {key} already")
        self._composites[key] = (composite, Network(composite, policy, bound))
        for number, part in enumerate(composite.parts()):
            self._parts.insert((key, number), part)

    def remove(self, key: K) -> None:
        found = self._composites.pop(key, None)
        if found is None:
            raise UnknownId(f"there is no composite subscription {key}")
        for number, _ in enumerate(found[0].parts()):
            self._parts.remove((key, number))

    def remembered(self, key: K) -> int:
        """How many partial matches of a composite wait for partners."""
        return self._composites[key][1].remembered()

    def match(self, publication: Publication) -> dict[K, list[tuple[Publication, ...]]]:
        """What a publication completes: for each composite the matches, as they arrived each."""
        entered = sorted(self._parts.match(publication), key=lambda found: found[1])
        if not entered:
            return {}
        self._arrived += 1
        now = self._clock()
        matches: dict[K, dict[frozenset[int], tuple[Publication, ...]]] = {}
        for key, number in entered:
            bindings = bind(
                self._parts[key, number].predicates, publication.attributes, self._strict
            )
            assert bindings is not None, "the matcher says that it is satisfied"
            new = Partial({self._arrived: publication}, bindings, now)
            for found in self._composites[key][1].enter(number, new, now):
                arrived = sorted(found.publications)
                same = matches.setdefault(key, {})
                same[frozenset(arrived)] = tuple(found.publications[at] for at in arrived)
        return {key: list(found.values()) for key, found in matches.items()}
