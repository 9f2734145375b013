"""Stripe for tests: events in its shape, signed as it signs them."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from typing import Any

import stripe

SECRET = "whsec_of_the_tests"


def signed(document: dict[str, Any], secret: str = SECRET, age: float = 0) -> tuple[bytes, str]:
    """The body and the signature of a webhook that was made so many seconds ago."""
    body = json.dumps(document)
    stamp = int(time.time() - age)
    header = stripe.WebhookSignature.generate_signature_header(body, secret, stamp)
    return body.encode(), header


def event(name: str, at: datetime, number: str, thing: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"evt_{number}",
        "object": "event",
        "type": name,
        "created": int(at.timestamp()),
        "data": {"object": thing},
    }


def subscription(
    name: str,
    at: datetime,
    number: str,
    *,
    status: str = "active",
    user: int | None = 1,
    plan: str = "premium",
    ref: str = "sub_1",
    **more: Any,
) -> dict[str, Any]:
    thing = {
        "id": ref,
        "object": "subscription",
        "status": status,
        "start_date": int(at.timestamp()),
        "metadata": {} if user is None else {"user_id": str(user)},
        "items": {
            "data": [
                {
                    "current_period_end": int((at + timedelta(days=30)).timestamp()),
                    "price": {"id": "price_9", "lookup_key": plan, "currency": "eur"},
                }
            ]
        },
        **more,
    }
    return event(f"customer.subscription.{name}", at, number, thing)


def invoice(at: datetime, number: str, *, cents: int = 499, first: bool = True) -> dict[str, Any]:
    thing = {
        "id": "in_1",
        "object": "invoice",
        "billing_reason": "subscription_create" if first else "subscription_cycle",
        "amount_paid": cents,
        "currency": "eur",
        "parent": {"subscription_details": {"subscription": "sub_1", "metadata": {}}},
        "payments": {"data": [{"payment": {"payment_intent": "pi_1"}}]},
    }
    return event("invoice.paid", at, number, thing)


def refund(at: datetime, number: str) -> dict[str, Any]:
    thing = {
        "id": "ch_1",
        "object": "charge",
        "amount_refunded": 499,
        "currency": "eur",
        "payment_intent": "pi_1",
        "metadata": {},
    }
    return event("charge.refunded", at, number, thing)
