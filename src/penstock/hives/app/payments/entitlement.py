"""What somebody may use: one set of features from all subscriptions they have.

A subscription bought on a phone does not carry over to another platform, so a person may well have
several, with different providers. They are not told apart when it comes to what is allowed: the
best plan names the entitlement, and every feature of every plan counts, with the widest limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from penstock.hives.app.payments.events import Status

_OVER: Final = frozenset({Status.EXPIRED, Status.REFUNDED})


@dataclass(frozen=True, slots=True)
class Held:
    """A subscription somebody has, and what its plan gives."""

    provider: str
    plan: str
    rank: int  #: the higher, the better the plan
    status: Status
    expires_at: datetime | None
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: code → limits

    def holds(self, now: datetime) -> bool:
        if self.status in _OVER:
            return False
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class Entitlement:
    plan: str
    features: Mapping[str, Mapping[str, Any]]
    providers: tuple[str, ...]  #: who is paid for it, for whoever wants to cancel


def merge(held: Iterable[Held], now: datetime, otherwise: str = "free") -> Entitlement:
    """All that hold now, together; `otherwise` is the plan of who has none."""
    holding = [each for each in held if each.holds(now)]
    best = max(holding, key=lambda each: (each.rank, each.plan), default=None)
    features: dict[str, dict[str, Any]] = {}
    for each in holding:
        for code, limits in each.features.items():
            known = features.get(code)
            features[code] = dict(limits) if known is None else _widest(known, limits)
    providers = tuple(sorted({each.provider for each in holding}))
    return Entitlement(best.plan if best else otherwise, features, providers)


def _widest(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A limit only one of two plans has is no limit: the other gives the feature without it."""
    both = one.keys() & other.keys()
    return {name: _wider(one[name], other[name]) for name in both}


def _wider(one: Any, other: Any) -> Any:
    if isinstance(one, bool) or isinstance(other, bool):
        return bool(one) or bool(other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return max(one, other)
    return one if one is not None else other
