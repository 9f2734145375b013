"""What a webhook says, in words that are the same for every provider.

An event may tell three things of a subscription: whose it is, how it stands now, and that money has
changed hands. Providers spread these over different notifications, so each part may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from penstock.core.errors import AccessRefused
from penstock.core.units import parse_count


class WebhookRefused(AccessRefused):
    """A webhook that is not the provider's, or is an old one sent again."""


class Provider(StrEnum):
    STRIPE = "stripe"
    APPLE = "apple"
    GOOGLE = "google"
    MANUAL = "manual"  #: an operator
    TEST = "test"  #: a development machine


class Status(StrEnum):
    TRIAL = "trial"  #: used and not paid for yet
    ACTIVE = "active"  #: paid, and will be renewed
    PAST_DUE = "past_due"  #: a payment failed; the provider tries again
    CANCELLED = "cancelled"  #: paid to the end of the period, and not renewed
    EXPIRED = "expired"  #: over
    REFUNDED = "refunded"  #: over, and the money given back


class MoneyKind(StrEnum):
    PURCHASE = "purchase"
    RENEWAL = "renewal"
    REFUND = "refund"
    CANCEL = "cancel"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a subscription is: a person's or a business's."""

    user_id: int | None = None
    account_id: int | None = None

    def __post_init__(self) -> None:
        if (self.user_id is None) == (self.account_id is None):
            raise ValueError("a subscription has one owner, a user or an account")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Owner | None:
        """From what we put on a purchase when it was begun; None, if it is not one of ours."""
        for name in ("user_id", "account_id"):
            value = parse_count(str(facts.get(name) or ""))
            if value is not None:
                return cls(**{name: value})
        return None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a subscription stands, as its provider saw it at the time of the event."""

    status: Status
    plan: str | None
    started_at: datetime | None = None
    renews_at: datetime | None = None
    cancelled_at: datetime | None = None
    expires_at: datetime | None = None  #: what was paid for ends then; None: when told so


@dataclass(frozen=True, slots=True)
class Money:
    """A line of the books. Nothing may have been paid, as when a subscription is cancelled."""

    kind: MoneyKind
    amount: Decimal = Decimal(0)
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Event:
    provider: Provider
    id: str  #: the provider's, the same each time it is sent
    at: datetime  #: when it happened, by the provider's clock
    name: str  #: what the provider calls it
    ref: str | None = None  #: the provider's id of the subscription
    related: str | None = None  #: of a payment, where the subscription is not named
    owner: Owner | None = None
    standing: Standing | None = None
    money: Money | None = None
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
