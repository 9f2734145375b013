"""The seven ways PADRES' guide has its overlay tests run: four trees, three with cycles."""

from __future__ import annotations

from penstock.content.forwarding import Covering
from penstock.overlay.rules import Cycles, Rules

ACYCLIC = {
    "acyclic": Rules(),
    "acyclic-lazy": Rules(subscriptions=Covering.LAZY),
    "acyclic-active": Rules(subscriptions=Covering.ACTIVE),
    "acyclic-advertisements-active": Rules(
        subscriptions=Covering.ACTIVE, advertisements=Covering.LAZY
    ),
}
CYCLIC = {
    "fixed": Rules(cycles=Cycles.FIXED),
    "fixed-active": Rules(cycles=Cycles.FIXED, subscriptions=Covering.ACTIVE),
    "dynamic": Rules(cycles=Cycles.DYNAMIC),
}
ALL = {**ACYCLIC, **CYCLIC}
