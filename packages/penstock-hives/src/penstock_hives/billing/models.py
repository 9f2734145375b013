"""Plans, subscriptions and payments; events of providers and how they are folded.

Providers spread an event over several notifications, so each part of a `BillingEvent` may be
missing. They send events twice, late and out of order. So the state of a subscription is computed
from all of its events: the owner is that of the first event with an owner, the state that of the
last event by the provider's clock. Events of one second are ordered by their meaning, then by id,
so that all machines agree.

A user may have subscriptions with several providers. The best plan names the entitlement, and the
features of all plans count, with the widest limits.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from penstock.core.errors import AccessRefused
from penstock.core.units import parse_count
from penstock_hives.errors import PlanRequired
from penstock_hives.people.permissions import PlanFeatureCode

#: Forecasts of other days than today.
OTHER_DAYS: Final = "your plan includes the forecast of today only"


@dataclass(frozen=True, slots=True)
class PlanFeature:
    code: str
    name: str
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    code: str
    name: str
    price: Decimal
    currency: str
    period: str
    audience: str
    features: tuple[PlanFeature, ...]


def plan_required(
    plans: Iterable[SubscriptionPlan], feature: PlanFeatureCode, detail: str, most: int = 0
) -> PlanRequired:
    """The error that names the plans with the feature; `most` is the limit of the present plan."""
    codes = [
        plan.code
        for plan in plans
        for each in plan.features
        if each.code == feature and (not each.limits or max(each.limits.values()) > most)
    ]
    return PlanRequired(detail, feature, codes)


@dataclass(frozen=True, slots=True)
class PlanSubscription:
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
class PaymentTransaction:
    id: int
    subscription_id: int
    plan: str
    kind: str
    amount: Decimal | None
    currency: str | None
    at: datetime
    cancelled_at: datetime | None
    expires_at: datetime | None


class WebhookRefused(AccessRefused):
    """A webhook with a wrong or old signature."""


class PaymentProvider(StrEnum):
    STRIPE = "stripe"
    APPLE = "apple"
    GOOGLE = "google"
    MANUAL = "manual"  #: an operator
    TEST = "test"  #: a development machine


class SubscriptionStatus(StrEnum):
    TRIAL = "trial"  #: not paid yet
    ACTIVE = "active"  #: paid, with renewal
    PAST_DUE = "past_due"  #: a payment failed and is retried
    CANCELLED = "cancelled"  #: paid, without renewal
    EXPIRED = "expired"  #: ended
    REFUNDED = "refunded"  #: ended, with a refund


class TransactionKind(StrEnum):
    PURCHASE = "purchase"
    RENEWAL = "renewal"
    REFUND = "refund"
    CANCEL = "cancel"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class SubscriptionOwner:
    """A user or an account."""

    user_id: int | None = None
    account_id: int | None = None

    def __post_init__(self) -> None:
        if (self.user_id is None) == (self.account_id is None):
            raise ValueError("a subscription has one owner, a user or an account")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> SubscriptionOwner | None:
        """From the metadata of a purchase; None without an owner."""
        for name in ("user_id", "account_id"):
            value = parse_count(str(facts.get(name) or ""))
            if value is not None:
                return cls(**{name: value})
        return None


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state of a subscription at the time of an event."""

    status: SubscriptionStatus
    plan: str | None
    started_at: datetime | None = None
    renews_at: datetime | None = None
    cancelled_at: datetime | None = None
    expires_at: datetime | None = None  #: the end of the paid period; None: open


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A transaction; the amount is 0 for a cancellation."""

    kind: TransactionKind
    amount: Decimal = Decimal(0)
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class BillingEvent:
    provider: PaymentProvider
    id: str  #: the provider's id, the same in repetitions
    at: datetime  #: by the provider's clock
    name: str  #: the provider's name of the event
    ref: str | None = None  #: the provider's id of the subscription
    related: str | None = None  #: the provider's id of a payment
    owner: SubscriptionOwner | None = None
    state: SubscriptionState | None = None
    entry: LedgerEntry | None = None
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


#: Currencies without a minor unit.
_WHOLE: Final = frozenset(
    [
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "JPY",
        "KMF",
        "KRW",
        "MGA",
        "PYG",
        "RWF",
        "UGX",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    ]
)


def amount_of(minor_units: int, currency: str) -> Decimal:
    """From minor units, such as cents."""
    if currency.upper() in _WHOLE:
        return Decimal(minor_units)
    return Decimal(minor_units).scaleb(-2)


_OVER: Final = frozenset({SubscriptionStatus.EXPIRED, SubscriptionStatus.REFUNDED})


@dataclass(frozen=True, slots=True)
class HeldSubscription:
    provider: str
    plan: str
    rank: int  #: the higher, the better the plan
    status: SubscriptionStatus
    expires_at: datetime | None
    features: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: code → limits

    def is_active(self, now: datetime) -> bool:
        if self.status in _OVER:
            return False
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class Entitlement:
    plan: str
    features: Mapping[str, Mapping[str, Any]]
    providers: tuple[str, ...]  #: of the subscriptions


def merge_entitlement(
    held: Iterable[HeldSubscription], now: datetime, otherwise: str = "free"
) -> Entitlement:
    """Of all active subscriptions; `otherwise` is the plan without any."""
    active = [each for each in held if each.is_active(now)]
    best = max(active, key=lambda each: (each.rank, each.plan), default=None)
    features: dict[str, dict[str, Any]] = {}
    for each in active:
        for code, limits in each.features.items():
            known = features.get(code)
            features[code] = dict(limits) if known is None else _widest(known, limits)
    providers = tuple(sorted({each.provider for each in active}))
    return Entitlement(best.plan if best else otherwise, features, providers)


def _widest(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A limit that only one of two plans has does not apply."""
    both = one.keys() & other.keys()
    return {name: _wider(one[name], other[name]) for name in both}


def _wider(one: Any, other: Any) -> Any:
    if isinstance(one, bool) or isinstance(other, bool):
        return bool(one) or bool(other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return max(one, other)
    return one if one is not None else other


#: The order of states within a second.
_RANKS: Final = {
    SubscriptionStatus.TRIAL: 0,
    SubscriptionStatus.ACTIVE: 1,
    SubscriptionStatus.PAST_DUE: 2,
    SubscriptionStatus.CANCELLED: 3,
    SubscriptionStatus.EXPIRED: 4,
    SubscriptionStatus.REFUNDED: 5,
}


#: Renewals may arrive late, so renewable subscriptions stay active for a day longer.
GRACE_PERIOD: Final = timedelta(days=1)
_RENEWED: Final = frozenset(
    {SubscriptionStatus.TRIAL, SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE}
)


@dataclass(frozen=True, slots=True)
class FoldedSubscription:
    """The result of all events of a subscription."""

    owner: SubscriptionOwner
    state: SubscriptionState
    event_at: datetime  #: of the last event

    @property
    def active_until(self) -> datetime | None:
        end = self.state.expires_at
        if end is not None and self.state.status in _RENEWED:
            return end + GRACE_PERIOD
        return end


def fold_events(events: Iterable[BillingEvent]) -> FoldedSubscription | None:
    """None while owner or state are unknown."""
    known = {event.id: event for event in events}
    by_time = sorted(known.values(), key=lambda event: (event.at, event.id))
    owner = next((event.owner for event in by_time if event.owner is not None), None)
    with_state = [event for event in by_time if event.state is not None]
    if owner is None or not with_state:
        return None
    last = max(with_state, key=_order)
    assert last.state is not None
    return FoldedSubscription(owner, _completed(last.state, with_state), last.at)


def _order(event: BillingEvent) -> tuple[datetime, int, str]:
    assert event.state is not None
    return event.at, _RANKS[event.state.status], event.id


def _completed(last: SubscriptionState, events: list[BillingEvent]) -> SubscriptionState:
    """With plan and start of earlier events, if the last one has none."""
    states = [event.state for event in events if event.state is not None]
    started = [each.started_at for each in states if each.started_at is not None]
    plans = [each.plan for each in states if each.plan is not None]
    return SubscriptionState(
        last.status,
        last.plan or (plans[-1] if plans else None),
        min(started) if started else None,
        last.renews_at,
        last.cancelled_at,
        last.expires_at,
    )


#: The upper half of our UUIDs, version 8; the lower half is the user id.
_OURS: Final = 0x70656E73746F8000


def account_token(user_id: int) -> uuid.UUID:
    """The UUID that an app passes to Apple with a purchase; notifications contain it."""
    return uuid.UUID(int=_OURS << 64 | 0x8 << 60 | user_id)


def user_of_account_token(token: str | None) -> int | None:
    """None: not one of our tokens."""
    try:
        number = uuid.UUID(token or "").int
    except ValueError:
        return None
    lower = number & (1 << 64) - 1
    if number >> 64 != _OURS or lower >> 60 != 0x8:
        return None
    return lower & (1 << 60) - 1 or None
