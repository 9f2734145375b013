"""How long figures take to get here: from when the broker took a report in to when it is told.

Latency is of one message and two points, so each is noted as it comes; how many there are in a
second says nothing of it. Kept are the last thousand. A figure that only time has brought about, of
a hive that fell silent, was no message and is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

KEPT: Final = 1000


class Delays:
    """In seconds."""

    __slots__ = ("_clock", "_kept")

    def __init__(self, clock: Callable[[], datetime], kept: int = KEPT) -> None:
        self._clock = clock
        self._kept: deque[float] = deque(maxlen=kept)

    def note(self, document: Mapping[str, Any]) -> None:
        """Of a figure that has just come."""
        if document.get("quality") == "stale":
            return
        try:
            taken = datetime.fromisoformat(document["as_of"])
            self._kept.append((self._clock() - taken).total_seconds())
        except (KeyError, TypeError, ValueError):  # it does not say when
            return

    def summary(self) -> dict[str, float | None]:
        """What half of them, and nineteen in twenty, did not exceed; none while there are none."""
        ordered = sorted(self._kept)
        return {name: _share(ordered, share) for name, share in (("p50", 0.5), ("p95", 0.95))}


def _share(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)
