"""Top-k subscriptions: the k best of each window of matching publications.

Windows slide by a step; of each window the best are delivered, each once. The rank is an attribute:
highest first, or with a `-` before its name lowest first.

    topk=price k=2 window=10 shift=1     the two highest of the last ten, at each publication
    topk=-price k=1 window=50 shift=50   the lowest of every fifty
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import nlargest
from typing import NamedTuple

from penstock.content.messages import Value, Variable
from penstock.core.errors import PreconditionFailed
from penstock.wire.padres.envelope import PadresEnvelope


class _RankedPublication(NamedTuple):
    rank: float
    number: int
    envelope: PadresEnvelope


class TopK:
    __slots__ = ("_attribute", "_k", "_least", "_number", "_sent", "_shift", "_window", "_windowed")

    def __init__(self, attribute: str, k: int, window: int, shift: int) -> None:
        if not attribute.lstrip("-") or not 1 <= k <= window or not 1 <= shift <= window:
            raise PreconditionFailed(
                "topk must name an attribute; k and shift must be from 1 to the window"
            )
        self._least = attribute.startswith("-")
        self._attribute = attribute.removeprefix("-")
        self._k = k
        self._window = window
        self._shift = shift
        self._number = 0
        self._windowed: deque[_RankedPublication] = deque(maxlen=window)
        self._sent: set[int] = set()

    @classmethod
    def of(cls, envelope: PadresEnvelope) -> TopK | None:
        """The top-k of a subscription's options, if any."""
        options = dict(envelope.options)
        if "topk" not in options:
            return None
        try:
            k, window = int(options.get("k", "2")), int(options.get("window", "10"))
            return cls(options["topk"], k, window, int(options.get("shift", "1")))
        except ValueError as error:
            raise PreconditionFailed(f"k, window and shift must be integers: {error}") from None

    def take(
        self, envelope: PadresEnvelope, attributes: Mapping[str, Value | Variable]
    ) -> list[PadresEnvelope]:
        """Add a publication; returns those to be delivered now, the best first."""
        value = attributes.get(self._attribute)
        if not isinstance(value, (int, float)):
            return []  # not comparable
        self._number += 1
        rank = float(-value if self._least else value)
        # Of equals the older ranks higher.
        self._windowed.append(_RankedPublication(rank, -self._number, envelope))
        if self._number < self._window or (self._number - self._window) % self._shift:
            return []
        oldest = -self._windowed[0].number
        self._sent = {number for number in self._sent if number >= oldest}
        chosen = nlargest(self._k, self._windowed, key=lambda seen: seen[:2])
        new = [seen for seen in chosen if -seen.number not in self._sent]
        self._sent.update(-seen.number for seen in new)
        return [seen.envelope for seen in new]
