"""Plans, who has them, and what was paid."""

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

#: A subscription that is one of these counts; cancelled ones do until they expire.
ACTIVE_STATUSES: Final = ("active", "trial", "past_due", "cancelled")


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


# What a webhook says, in words that are the same for every provider.
#
# An event may tell three things of a subscription: whose it is, how it stands now, and that money
# has changed hands. Providers spread these over different notifications, so each part may be
# missing.


class WebhookRefused(AccessRefused):
    """A webhook that is not the provider's, or is an old one sent again."""


class PaymentProvider(StrEnum):
    STRIPE = "stripe"
    APPLE = "apple"
    GOOGLE = "google"
    MANUAL = "manual"  #: an operator
    TEST = "test"  #: a development machine


class SubscriptionStatus(StrEnum):
    TRIAL = "trial"  #: used and not paid for yet
    ACTIVE = "active"  #: paid, and will be renewed
    PAST_DUE = "past_due"  #: a payment failed; the provider tries again
    CANCELLED = "cancelled"  #: paid to the end of the period, and not renewed
    EXPIRED = "expired"  #: over
    REFUNDED = "refunded"  #: over, and the money given back


class TransactionKind(StrEnum):
    PURCHASE = "purchase"
    RENEWAL = "renewal"
    REFUND = "refund"
    CANCEL = "cancel"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class SubscriptionOwner:
    """Whose a subscription is: a person's or a business's."""

    user_id: int | None = None
    account_id: int | None = None

    def __post_init__(self) -> None:
        if (self.user_id is None) == (self.account_id is None):
            raise ValueError("a subscription has one owner, a user or an account")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> SubscriptionOwner | None:
        """From what we put on a purchase when it was begun; None, if it is not one of ours."""
        for name in ("user_id", "account_id"):
            value = parse_count(str(facts.get(name) or ""))
            if value is not None:
                return cls(**{name: value})
        return None


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """How a subscription stands, as its provider saw it at the time of the event."""

    status: SubscriptionStatus
    plan: str | None
    started_at: datetime | None = None
    renews_at: datetime | None = None
    cancelled_at: datetime | None = None
    expires_at: datetime | None = None  #: what was paid for ends then; None: when told so


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the books. Nothing may have been paid, as when a subscription is cancelled."""

    kind: TransactionKind
    amount: Decimal = Decimal(0)
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class BillingEvent:
    provider: PaymentProvider
    id: str  #: the provider's, the same each time it is sent
    at: datetime  #: when it happened, by the provider's clock
    name: str  #: what the provider calls it
    ref: str | None = None  #: the provider's id of the subscription
    related: str | None = None  #: of a payment, where the subscription is not named
    owner: SubscriptionOwner | None = None
    standing: SubscriptionState | None = None
    money: LedgerEntry | None = None
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


#: Currencies without a smaller unit: 500 is five hundred yen.
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


def amount_of(smallest_units: int, currency: str) -> Decimal:
    """What providers count in cents, as a person would write it."""
    if currency.upper() in _WHOLE:
        return Decimal(smallest_units)
    return Decimal(smallest_units).scaleb(-2)


# What somebody may use: one set of features from all subscriptions they have.
#
# A subscription bought on a phone does not carry over to another platform, so a person may well
# have several, with different providers. They are not told apart when it comes to what is allowed:
# the best plan names the entitlement, and every feature of every plan counts, with the widest
# limit.

_OVER: Final = frozenset({SubscriptionStatus.EXPIRED, SubscriptionStatus.REFUNDED})


@dataclass(frozen=True, slots=True)
class HeldSubscription:
    """A subscription somebody has, and what its plan gives."""

    provider: str
    plan: str
    rank: int  #: the higher, the better the plan
    status: SubscriptionStatus
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


def merge_entitlement(
    held: Iterable[HeldSubscription], now: datetime, otherwise: str = "free"
) -> Entitlement:
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


# From all events of a subscription to how it stands: the same whatever order they came in.
#
# Providers send events twice, late and out of order. So no event is applied to a state: the state
# is read off the whole set. Its owner is who the first event that names one says; how it stands is
# what the last event by the provider's own clock says. Events of one moment are ordered by what
# they mean, an end after a beginning, and then by id, so that two machines never disagree.

#: Clocks of providers have seconds: what wins when two things happened in the same one.
_RANKS: Final = {
    SubscriptionStatus.TRIAL: 0,
    SubscriptionStatus.ACTIVE: 1,
    SubscriptionStatus.PAST_DUE: 2,
    SubscriptionStatus.CANCELLED: 3,
    SubscriptionStatus.EXPIRED: 4,
    SubscriptionStatus.REFUNDED: 5,
}


#: What will be renewed is served a little longer than paid for: providers tell late, and that
#: is not held against who paid.
GRACE_PERIOD: Final = timedelta(days=1)
_RENEWED: Final = frozenset(
    {SubscriptionStatus.TRIAL, SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE}
)


@dataclass(frozen=True, slots=True)
class FoldedSubscription:
    """A subscription as its events have it."""

    owner: SubscriptionOwner
    standing: SubscriptionState
    event_at: datetime  #: of the event that said so

    @property
    def served_until(self) -> datetime | None:
        end = self.standing.expires_at
        if end is not None and self.standing.status in _RENEWED:
            return end + GRACE_PERIOD
        return end


def fold_events(events: Iterable[BillingEvent]) -> FoldedSubscription | None:
    """None while nobody has said whose it is, or how it stands."""
    known = {event.id: event for event in events}
    by_time = sorted(known.values(), key=lambda event: (event.at, event.id))
    owner = next((event.owner for event in by_time if event.owner is not None), None)
    telling = [event for event in by_time if event.standing is not None]
    if owner is None or not telling:
        return None
    last = max(telling, key=_order)
    assert last.standing is not None
    return FoldedSubscription(owner, _completed(last.standing, telling), last.at)


def _order(event: BillingEvent) -> tuple[datetime, int, str]:
    assert event.standing is not None
    return event.at, _RANKS[event.standing.status], event.id


def _completed(standing: SubscriptionState, telling: list[BillingEvent]) -> SubscriptionState:
    """What the last event leaves open, earlier ones have said: the plan, and when it began."""
    said = [event.standing for event in telling if event.standing is not None]
    started = [each.started_at for each in said if each.started_at is not None]
    plans = [each.plan for each in said if each.plan is not None]
    return SubscriptionState(
        standing.status,
        standing.plan or (plans[-1] if plans else None),
        min(started) if started else None,
        standing.renews_at,
        standing.cancelled_at,
        standing.expires_at,
    )


# Account tokens: what Apple knows a person by, a UUID that the app passes along with a purchase.
#
# Ours says which user it is, so that a notification names its owner without a table between.

#: The upper half of our tokens: a version 8 UUID; the lower half is the user's id.
_OURS: Final = 0x70656E73746F8000


def account_token(user_id: int) -> uuid.UUID:
    """What an app gives Apple with a purchase, so that it comes back with every notification."""
    return uuid.UUID(int=_OURS << 64 | 0x8 << 60 | user_id)


def user_of_account_token(token: str | None) -> int | None:
    """Whose an account token is; None, if it is none of ours."""
    try:
        number = uuid.UUID(token or "").int
    except ValueError:
        return None
    lower = number & (1 << 64) - 1
    if number >> 64 != _OURS or lower >> 60 != 0x8:
        return None
    return lower & (1 << 60) - 1 or None
