"""Plans, who has them, and what was paid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

#: A subscription that is one of these counts; cancelled ones do until they expire.
RUNNING: Final = ("active", "trial", "past_due", "cancelled")


@dataclass(frozen=True, slots=True)
class PlanFeature:
    code: str
    name: str
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    code: str
    name: str
    price: Decimal
    currency: str
    period: str
    audience: str
    features: tuple[PlanFeature, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    id: int
    user_id: int | None
    account_id: int | None
    plan: str
    provider: str
    status: str
    started_at: datetime
    renews_at: datetime | None
    cancelled_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Transaction:
    id: int
    subscription_id: int
    plan: str
    kind: str
    amount: Decimal | None
    currency: str | None
    at: datetime
    cancelled_at: datetime | None
    expires_at: datetime | None
