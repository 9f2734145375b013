"""Webhooks of Stripe: signature check over the raw bytes, and decoding to a `BillingEvent`.

Signatures contain their time, so replayed webhooks are refused. Several secrets may be valid, for
rotation. The owner is in the metadata of the checkout (`user_id` or `account_id`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import stripe

from penstock_hives.billing.models import (
    BillingEvent,
    LedgerEntry,
    PaymentProvider,
    SubscriptionOwner,
    SubscriptionState,
    SubscriptionStatus,
    TransactionKind,
    WebhookRefused,
    amount_of,
)
from penstock_hives.encoding import from_unix

#: The maximum age of a signature, in seconds.
TOLERANCE: Final = 300
_STATUSES: Final = {
    "trialing": SubscriptionStatus.TRIAL,
    "active": SubscriptionStatus.ACTIVE,
    "past_due": SubscriptionStatus.PAST_DUE,
    "unpaid": SubscriptionStatus.PAST_DUE,
    "paused": SubscriptionStatus.EXPIRED,
    "canceled": SubscriptionStatus.EXPIRED,
    "incomplete": None,  # nothing was paid yet
    "incomplete_expired": None,
}
Object = Mapping[str, Any]


class StripeWebhooks:
    """`plans` maps prices of Stripe to our plans."""

    def __init__(self, secrets: Sequence[str], plans: Mapping[str, str]) -> None:
        if not secrets:
            raise ValueError("no secret for Stripe's signatures")
        self._secrets = tuple(secrets)
        self._plans = plans

    def read(self, body: bytes, signature: str | None) -> BillingEvent:
        self._check(body, signature)
        try:
            document = json.loads(body)
            return self._event(document)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise WebhookRefused(f"not a Stripe event: {error!r}") from error

    def _check(self, body: bytes, signature: str | None) -> None:
        reason = "no signature"
        for secret in self._secrets:
            try:
                # The library signs text.
                stripe.WebhookSignature.verify_header(body.decode(), signature, secret, TOLERANCE)
            except (stripe.SignatureVerificationError, ValueError) as error:
                reason = str(error).partition("\n")[0]
            else:
                return
        raise WebhookRefused(f"the webhook is not Stripe's: {reason}")

    def _event(self, document: Object) -> BillingEvent:
        name, thing = str(document["type"]), document["data"]["object"]
        read = self._readers().get(name)
        event = BillingEvent(
            PaymentProvider.STRIPE,
            str(document["id"]),
            datetime.fromtimestamp(document["created"], UTC),
            name,
            payload=document,
        )
        return event if read is None else read(event, thing)

    def _readers(self) -> Mapping[str, Callable[[BillingEvent, Object], BillingEvent]]:
        subscription = dict.fromkeys(
            (f"customer.subscription.{what}" for what in _SUBSCRIPTION_EVENTS), self._subscription
        )
        return {
            **subscription,
            "checkout.session.completed": _checkout,
            "invoice.paid": _invoice,
            "charge.refunded": _refund,
        }

    def _subscription(self, event: BillingEvent, thing: Object) -> BillingEvent:
        item = thing["items"]["data"][0]
        status = _STATUSES[thing["status"]]
        end = from_unix(item.get("current_period_end") or thing.get("current_period_end"))
        cancelled = from_unix(thing.get("canceled_at"))
        ended = from_unix(thing.get("ended_at"))
        if status in (SubscriptionStatus.ACTIVE, SubscriptionStatus.TRIAL) and thing.get(
            "cancel_at_period_end"
        ):
            status = SubscriptionStatus.CANCELLED
        over = status is SubscriptionStatus.EXPIRED
        state = status and SubscriptionState(
            status,
            self._plan(item["price"]),
            from_unix(thing.get("start_date")),
            None if over or status is SubscriptionStatus.CANCELLED else end,
            cancelled,
            (ended or event.at) if over else end,
        )
        entry = None
        if event.name == "customer.subscription.deleted":
            entry = LedgerEntry(TransactionKind.EXPIRE, currency=_currency(item["price"]))
        owner = SubscriptionOwner.of(thing.get("metadata") or {})
        return _with(event, ref=str(thing["id"]), owner=owner, state=state, entry=entry)

    def _plan(self, price: Object) -> str | None:
        """By the id or lookup key of the price; else the lookup key is the plan."""
        key = price.get("lookup_key")
        return self._plans.get(str(price["id"])) or self._plans.get(str(key)) or key


_SUBSCRIPTION_EVENTS: Final = ("created", "updated", "deleted", "paused", "resumed")


def _checkout(event: BillingEvent, thing: Object) -> BillingEvent:
    owner = SubscriptionOwner.of(thing.get("metadata") or {})
    ref = thing.get("subscription")
    return _with(event, ref=str(ref) if ref else None, owner=owner)


def _invoice(event: BillingEvent, thing: Object) -> BillingEvent:
    parent = (thing.get("parent") or {}).get("subscription_details") or {}
    ref = thing.get("subscription") or parent.get("subscription")
    first = thing.get("billing_reason") == "subscription_create"
    kind = TransactionKind.PURCHASE if first else TransactionKind.RENEWAL
    currency = str(thing["currency"]).upper()
    entry = LedgerEntry(kind, amount_of(int(thing["amount_paid"]), currency), currency)
    owner = SubscriptionOwner.of(parent.get("metadata") or {})
    return _with(
        event, ref=str(ref) if ref else None, related=_payment(thing), owner=owner, entry=entry
    )


def _refund(event: BillingEvent, thing: Object) -> BillingEvent:
    currency = str(thing["currency"]).upper()
    entry = LedgerEntry(
        TransactionKind.REFUND, amount_of(int(thing["amount_refunded"]), currency), currency
    )
    ref = (thing.get("metadata") or {}).get("subscription")
    return _with(event, ref=ref, related=_payment(thing), entry=entry)


def _payment(thing: Object) -> str | None:
    """The id that an invoice and its charge share."""
    listed = ((thing.get("payments") or {}).get("data") or [{}])[0].get("payment") or {}
    found = thing.get("payment_intent") or listed.get("payment_intent")
    return str(found) if found else None


def _with(event: BillingEvent, **facts: Any) -> BillingEvent:
    return BillingEvent(
        event.provider, event.id, event.at, event.name, payload=event.payload, **facts
    )


def _currency(price: Object) -> str:
    return str(price.get("currency") or "eur").upper()
