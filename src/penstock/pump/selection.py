"""Which posts are wanted: patterns against the URL, in order, the first that matches decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.pump.placement import Placement


@dataclass(frozen=True, slots=True)
class Clause:
    """An `accept` or a `reject`, and where what is accepted goes."""

    accept: bool
    pattern: re.Pattern[str]
    placement: Placement


@dataclass(frozen=True, slots=True)
class Chosen:
    """Accepted: where it goes, and what the pattern found."""

    placement: Placement
    groups: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """With no clause at all everything is wanted; else what none matches is decided by
    `unmatched`."""

    clauses: Sequence[Clause] = ()
    unmatched: bool = False
    placement: Placement = field(default_factory=Placement)

    def choose(self, url: str) -> Chosen | str:
        """What to do with it, or the reason why not."""
        for clause in self.clauses:
            if (found := clause.pattern.match(url)) is not None:
                if clause.accept:
                    return Chosen(clause.placement, found.groups())
                return f"reject {clause.pattern.pattern}"
        if self.unmatched or not self.clauses:
            return Chosen(self.placement)
        return "no accept matches"
