"""How long a publication counts for a composite subscription, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Policy(Enum):
    """What becomes of publications that have been part of a match."""

    REMAIN = "consume-and-remain"  #: they count again with every new partner
    ONCE = "consume-once"  #: each counts once, with the oldest partner that waits
    RECENT = "recent-only"  #: the newest counts, with every new partner, and replaces what was


@dataclass(frozen=True, slots=True)
class Bound:
    """What a composite subscription remembers, so that it cannot grow without limit."""

    size: int = 1000  #: partial matches on each side of each `&`; the oldest go first
    seconds: float | None = None  #: all publications of a match arrive within this time

    def __post_init__(self) -> None:
        if self.size < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError(
                "a composite remembers one partial match at least, and no negative time"
            )


UNBOUNDED_TIME: Final = Bound()
