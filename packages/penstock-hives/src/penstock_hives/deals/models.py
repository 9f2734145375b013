"""Deals: what a hive offers for a time, and which of them somebody wants to hear of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum


class DealKind(StrEnum):
    DISCOUNT = "discount"
    PROMOTION = "promotion"
    DAILY = "daily"  #: for one day
    EVENT = "event"


class DealStatus(StrEnum):
    DRAFT = "draft"  #: seen by the business only
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"  #: taken back before its time


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
class RecommendedDeal:
    deal: Deal
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class DealEffect:
    """What came of a deal: what people did with it, and as of the last night how many came a day
    while it ran, beside those of the same weekdays before. None of what no night knows yet."""

    deal_id: int
    shown: int
    opened: int
    redeemed: int
    day: date | None  #: up to which it is
    days: int  #: it has run, whole ones
    visits_a_day: float | None
    expected_a_day: float | None
    lift: float | None  #: what came on top, as a share of what was expected


@dataclass(frozen=True, slots=True)
class DealPreference:
    """Empty lists mean any."""

    kinds: tuple[str, ...] = ()
    hive_types: tuple[str, ...] = ()
    within_km: float | None = None
    lat: float | None = None
    lon: float | None = None
    expiry_hours: tuple[int, ...] = (24, 2)
