"""Deals of hives, what people did with them, and which deals a user prefers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from pydantic import Field

from penstock_hives.queries import PageQuery


class DealKind(StrEnum):
    DISCOUNT = "discount"
    PROMOTION = "promotion"
    DAILY = "daily"  #: for one day
    EVENT = "event"


class DealQuery(PageQuery):
    kind: DealKind | None = None
    expiring_within_h: float | None = Field(default=None, gt=0, le=8784)
    """Hours."""


class DealStatus(StrEnum):
    DRAFT = "draft"  #: visible to the business only
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"  #: ended early by the business


class DealAction(StrEnum):
    SHOWN = "shown"
    OPENED = "opened"
    REDEEMED = "redeemed"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Deal:
    id: int
    hive_id: int
    hive_name: str
    time_zone: str  #: of the hive
    title: str
    description: str
    terms: str
    kind: str
    starts_at: datetime
    expires_at: datetime
    status: str
    max_redemptions: int | None
    redemptions: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class DealRedemption:
    """A deal that a user has redeemed; the business verifies its code once."""

    code: str
    deal_id: int
    hive_id: int
    hive_name: str
    time_zone: str  #: of the hive
    title: str
    expires_at: datetime
    redeemed_at: datetime
    verified_at: datetime | None


@dataclass(frozen=True, slots=True)
class RecommendedDeal:
    deal: Deal
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class DealEffect:
    """What people did with a deal, and its effect as of the last night: visits a day while it ran,
    compared with the same weekdays before. None: not computed yet."""

    deal_id: int
    shown: int
    opened: int
    redeemed: int
    day: date | None  #: the last day included
    days: int  #: whole days the deal has run
    visits_a_day: float | None
    expected_a_day: float | None
    lift: float | None  #: additional visits, as a share of the expected ones


@dataclass(frozen=True, slots=True)
class DealPreference:
    """Empty lists mean any."""

    kinds: tuple[str, ...] = ()
    hive_types: tuple[str, ...] = ()
    within_km: float | None = None
    lat: float | None = None
    lon: float | None = None
    expiry_hours: tuple[int, ...] = (24, 2)
