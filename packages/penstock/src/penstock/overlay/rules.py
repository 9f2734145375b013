"""How a broker routes: what its operator chose. All brokers of an overlay choose the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.content.covering import CoveringMode
from penstock.core.errors import ConfigurationError


class CycleMode(Enum):
    """Whether there may be several ways from one broker to another."""

    OFF = "OFF"  #: the overlay is a tree; a link that would close a cycle is refused
    FIXED = "FIXED"  #: a publication follows the tree of its advertisement
    DYNAMIC = "DYNAMIC"  #: it leaves that tree for another where a link is busy or down


@dataclass(frozen=True, slots=True)
class RoutingRules:
    cycles: CycleMode = CycleMode.OFF
    subscriptions: CoveringMode = CoveringMode.OFF  #: of what neighbours are told
    advertisements: CoveringMode = CoveringMode.OFF
    conformance: bool = True  #: whether publications of clients have to be advertised
    strict: bool = False  #: how types are compared
    split: bool = False  #: composites travel whole to where the ways to their parts divide
    ordered_by: str = ""  #: the broker that puts all publications in one order

    def __post_init__(self) -> None:
        if self.advertisements is CoveringMode.ACTIVE:
            raise ConfigurationError(
                "advertisements are covered lazily (LAZY), or not at all (OFF)"
            )
        if self.advertisements is not CoveringMode.OFF and self.cycles is not CycleMode.OFF:
            raise ConfigurationError(
                "advertisements can be covered in an overlay without cycles only: "
                "with them each has a tree of its own"
            )
        if self.subscriptions is not CoveringMode.OFF and self.cycles is CycleMode.DYNAMIC:
            raise ConfigurationError(
                "subscriptions cannot be covered where publications change trees (DYNAMIC): "
                "each has to be known along each of them"
            )
        if self.split and self.cycles is not CycleMode.OFF:
            raise ConfigurationError("composites are split in an overlay without cycles only")
        if self.ordered_by and (self.split or self.cycles is not CycleMode.OFF):
            raise ConfigurationError(
                "publications are put in order in an overlay without cycles only, and where "
                "composites are not split: they all go by one broker"
            )

    @property
    def agreed(self) -> str:
        """What neighbours have to have in common."""
        order = f", ordered by {self.ordered_by}" if self.ordered_by else ""
        return f"cycles {self.cycles.value}{order}"
