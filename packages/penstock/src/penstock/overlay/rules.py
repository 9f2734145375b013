"""Routing rules of a broker. All brokers of an overlay have the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.content.covering import CoveringMode
from penstock.core.errors import ConfigurationError


class CycleMode(Enum):
    """Whether there may be several routes between two brokers."""

    OFF = "OFF"  #: the overlay is a tree; a link that would close a cycle is refused
    FIXED = "FIXED"  #: a publication follows the tree of its advertisement
    DYNAMIC = "DYNAMIC"  #: it may change to another tree where a link is busy or down


@dataclass(frozen=True, slots=True)
class RoutingRules:
    cycles: CycleMode = CycleMode.OFF
    subscriptions: CoveringMode = CoveringMode.OFF  #: covering
    advertisements: CoveringMode = CoveringMode.OFF
    conformance: bool = True  #: publications of clients must be advertised
    strict: bool = False  #: strict types
    split: bool = False  #: composites are joined where the routes of their parts divide
    ordered_by: str = ""  #: the broker that orders all publications

    def __post_init__(self) -> None:
        if self.advertisements is CoveringMode.ACTIVE:
            raise ConfigurationError("overlay.advertisement_covering must be LAZY or OFF")
        if self.advertisements is not CoveringMode.OFF and self.cycles is not CycleMode.OFF:
            raise ConfigurationError(
                "overlay.advertisement_covering needs overlay.cycles OFF: "
                "with cycles each advertisement has its own tree"
            )
        if self.subscriptions is not CoveringMode.OFF and self.cycles is CycleMode.DYNAMIC:
            raise ConfigurationError(
                "overlay.subscription_covering must be OFF with overlay.cycles DYNAMIC: "
                "each subscription must be known along each tree"
            )
        if self.split and self.cycles is not CycleMode.OFF:
            raise ConfigurationError("overlay.split_composites needs overlay.cycles OFF")
        if self.ordered_by and (self.split or self.cycles is not CycleMode.OFF):
            raise ConfigurationError(
                "overlay.ordered_by needs overlay.cycles OFF and "
                "overlay.split_composites off: all publications pass one broker"
            )

    @property
    def agreed(self) -> str:
        """The rules that neighbours must share."""
        order = f", ordered by {self.ordered_by}" if self.ordered_by else ""
        return f"cycles {self.cycles.value}{order}"
