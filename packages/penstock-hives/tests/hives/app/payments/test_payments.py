"""Webhooks become subscriptions and lines of the books: once each, in any order."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock_hives.billing.apple import AppleWebhooks, verifier_for
from penstock_hives.billing.development import DevelopmentProvider
from penstock_hives.billing.models import (
    BillingEvent,
    SubscriptionOwner,
    SubscriptionStatus,
    account_token,
)
from penstock_hives.billing.service import EventOutcome, PaymentService
from penstock_hives.billing.stripe import StripeWebhooks
from penstock_hives.database import DatabasePool
from tests.hives.app.payments import stripe
from tests.hives.app.payments.apple import BUNDLE, AppStore

NOW = datetime.now(UTC).replace(microsecond=0)
WEBHOOKS = StripeWebhooks([stripe.SECRET], {})


@pytest.fixture
def payments(pool: DatabasePool) -> PaymentService:
    return PaymentService(pool)


def read(document: dict[str, Any]) -> BillingEvent:
    return WEBHOOKS.read(*stripe.signed(document))


def story() -> list[BillingEvent]:
    """A subscription's life: bought, paid, cancelled, refunded and over."""
    day = timedelta(days=1)
    return [
        read(stripe.subscription("created", NOW - 9 * day, "1")),
        read(stripe.invoice(NOW - 9 * day, "2")),
        read(stripe.subscription("updated", NOW - 5 * day, "3", cancel_at_period_end=True)),
        read(stripe.refund(NOW - 2 * day, "4")),
        read(stripe.subscription("deleted", NOW - day, "5", status="canceled")),
    ]


async def written(pool: DatabasePool) -> tuple[Any, ...]:
    subscriptions = await pool.rows(
        """SELECT user_id, t.code, provider_ref, s.status, started_at, expires_at, event_at
           FROM subscription s JOIN subscription_type t ON t.id = subscription_type_id"""
    )
    lines = await pool.rows("SELECT provider_event_id, kind, amount FROM transaction ORDER BY 1")
    waiting = await pool.rows(
        "SELECT provider_event_id FROM payment_event WHERE applied_at IS NULL"
    )
    return subscriptions, lines, waiting


async def test_a_purchase_gives_the_plan(payments: PaymentService, pool: DatabasePool) -> None:
    for event in story()[:2]:
        assert await payments.apply(event) is EventOutcome.APPLIED

    entitlement = await payments.entitlement(SubscriptionOwner(user_id=1))
    assert (entitlement.plan, entitlement.providers) == ("premium", ("stripe",))
    assert entitlement.features["alerts"] == {"alerts": 100}
    (line,) = await pool.rows("SELECT kind, amount, currency FROM transaction")
    assert line == {"kind": "purchase", "amount": Decimal("4.99"), "currency": "EUR"}


async def test_the_same_event_again_changes_nothing(
    payments: PaymentService, pool: DatabasePool
) -> None:
    for event in story():
        await payments.apply(event)
    before = await written(pool)
    for event in story():
        assert await payments.apply(event) is EventOutcome.SEEN
    assert await written(pool) == before


async def test_events_in_any_order_end_the_same(
    payments: PaymentService, pool: DatabasePool
) -> None:
    told = story()
    for event in told:
        await payments.apply(event)
    in_order = await written(pool)
    assert in_order[2] == []
    orders = list(itertools.permutations(told))
    for order in (orders[-1], *orders[7::23]):
        await pool.execute("TRUNCATE payment_event, subscription, transaction")
        for event in order:
            await payments.apply(event)
        assert await written(pool) == in_order


async def test_events_that_come_at_once_are_all_counted(
    payments: PaymentService, pool: DatabasePool
) -> None:
    told = story()
    for event in told:
        await payments.apply(event)
    one_by_one = await written(pool)
    await pool.execute("TRUNCATE payment_event, subscription, transaction")

    await asyncio.gather(*(payments.apply(event) for event in told * 2))

    assert await written(pool) == one_by_one


async def test_an_event_waits_until_somebody_says_whose_it_is(payments: PaymentService) -> None:
    nobodys = read(stripe.subscription("created", NOW, "1", user=None))
    assert await payments.apply(nobodys) is EventOutcome.WAITING
    session = {"subscription": "sub_1", "metadata": {"user_id": "1"}}
    checkout = stripe.event("checkout.session.completed", NOW, "2", session)
    assert await payments.apply(read(checkout)) is EventOutcome.APPLIED
    assert (await payments.entitlement(SubscriptionOwner(user_id=1))).plan == "premium"


async def test_a_plan_nobody_knows_is_kept_and_said(
    payments: PaymentService, pool: DatabasePool
) -> None:
    odd = read(stripe.subscription("created", NOW, "1", plan="ultimate"))
    assert await payments.apply(odd) is EventOutcome.WAITING
    (row,) = await pool.rows("SELECT error FROM payment_event")
    assert row["error"] == "plan ultimate does not exist"


async def test_an_owner_nobody_knows_is_kept_and_said(
    payments: PaymentService, pool: DatabasePool
) -> None:
    stranger = read(stripe.subscription("created", NOW, "1", user=99))
    assert await payments.apply(stranger) is EventOutcome.WAITING
    (row,) = await pool.rows("SELECT error FROM payment_event")
    assert row["error"] == "the user or account does not exist"


async def test_plans_of_several_providers_are_one_entitlement(payments: PaymentService) -> None:
    store = AppStore()
    apple = AppleWebhooks(verifier_for(BUNDLE, None, "Sandbox", [store.root], production=False), {})
    bought = {"appAccountToken": str(account_token(1)), "productId": "app.bees.basic"}
    await payments.apply(apple.read(store.notification("SUBSCRIBED", at=NOW, transaction=bought)))
    assert (await payments.entitlement(SubscriptionOwner(user_id=1))).plan == "basic"

    await payments.apply(read(stripe.subscription("created", NOW, "1")))
    both = await payments.entitlement(SubscriptionOwner(user_id=1))
    assert (both.plan, both.providers) == ("premium", ("apple", "stripe"))

    await payments.apply(
        read(stripe.subscription("deleted", NOW + timedelta(seconds=1), "2", status="canceled"))
    )
    left = await payments.entitlement(SubscriptionOwner(user_id=1))
    assert (left.plan, left.providers) == ("basic", ("apple",))


async def test_a_business_has_an_entitlement_of_its_own(
    payments: PaymentService, pool: DatabasePool
) -> None:
    await pool.execute("INSERT INTO account (id, name) VALUES (5, 'Bees Ltd')")
    provider = DevelopmentProvider(production=False)
    bought = provider.webhook(
        SubscriptionOwner(account_id=5), "business", SubscriptionStatus.ACTIVE, 2900
    )
    assert await payments.apply(provider.read(*bought)) is EventOutcome.APPLIED
    assert (await payments.entitlement(SubscriptionOwner(account_id=5))).plan == "business"
    assert (await payments.entitlement(SubscriptionOwner(user_id=1))).plan == "free"
