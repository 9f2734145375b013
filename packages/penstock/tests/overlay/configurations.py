"""The seven ways PADRES' guide has its overlay tests run: four trees, three with cycles."""

from __future__ import annotations

from penstock.content.covering import CoveringMode
from penstock.overlay.rules import CycleMode, RoutingRules

ACYCLIC = {
    "acyclic": RoutingRules(),
    "acyclic-lazy": RoutingRules(subscriptions=CoveringMode.LAZY),
    "acyclic-active": RoutingRules(subscriptions=CoveringMode.ACTIVE),
    "acyclic-advertisements-active": RoutingRules(
        subscriptions=CoveringMode.ACTIVE, advertisements=CoveringMode.LAZY
    ),
}
CYCLIC = {
    "fixed": RoutingRules(cycles=CycleMode.FIXED),
    "fixed-active": RoutingRules(cycles=CycleMode.FIXED, subscriptions=CoveringMode.ACTIVE),
    "dynamic": RoutingRules(cycles=CycleMode.DYNAMIC),
}
ALL = {**ACYCLIC, **CYCLIC}
