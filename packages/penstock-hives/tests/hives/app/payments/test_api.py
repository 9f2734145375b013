"""Webhooks over HTTP: what a provider signed is taken, once; anything else is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock_hives.billing.models import account_token
from penstock_hives.billing.settings import PaymentSettings
from penstock_hives.people.permissions import UserRole
from tests.databases import copy_of
from tests.hives.app.calling import Called, called
from tests.hives.app.payments import stripe
from tests.hives.app.payments.apple import BUNDLE, AppStore
from tests.hives.app.payments.test_webhooks import NOW

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRIPE = "/v1/payments/stripe/webhook"
APPLE = "/v1/payments/apple/webhook"


@pytest.fixture(scope="module")
def store() -> AppStore:
    return AppStore()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(
    embedded_template: str, tmp_path_factory: pytest.TempPathFactory, store: AppStore
) -> AsyncIterator[Called]:
    folder = tmp_path_factory.mktemp("hives")
    root = folder / "root.cer"
    root.write_bytes(store.root)
    settings = PaymentSettings(
        stripe_secrets=[stripe.SECRET],
        apple_bundle=BUNDLE,
        apple_environment="Sandbox",
        apple_roots=[root],
    )
    with copy_of(embedded_template) as url:
        async with called(url, folder, payment=settings) as application:
            yield application


async def ada(hives: Called) -> tuple[str, int]:
    uid = await hives.enter(UserRole.USER)
    assert uid is not None
    row = await hives.resources.pool.row("SELECT id FROM app_user WHERE firebase_uid = %s", (uid,))
    assert row is not None
    return uid, row["id"]


async def plan(hives: Called, uid: str) -> str:
    return str((await hives.call("GET", "/v1/payments/entitlement", uid)).json()["plan"])


async def test_a_webhook_of_stripes_gives_the_plan_once(hives: Called) -> None:
    uid, number = await ada(hives)
    body, signature = stripe.signed(stripe.subscription("created", NOW, "1", user=number))
    headers = {"Stripe-Signature": signature}
    outcomes = [
        (await hives.call("POST", STRIPE, content=body, headers=headers)).json()["outcome"]
        for _ in range(2)
    ]
    assert outcomes == ["applied", "seen"]
    assert await plan(hives, uid) == "premium"
    caller = await hives.resources.services.users.caller(uid)
    assert caller.plan == "premium"  # the rest of the application sees it, too


async def test_a_forged_webhook_is_refused(hives: Called) -> None:
    uid, number = await ada(hives)
    body, signature = stripe.signed(
        stripe.subscription("created", NOW, "1", user=number), secret="guessed"
    )
    refused = await hives.call(
        "POST", STRIPE, content=body, headers={"Stripe-Signature": signature}
    )
    assert refused.status_code == 403
    assert refused.headers["content-type"] == "application/problem+json"
    assert (await hives.call("POST", STRIPE, content=body)).status_code == 403
    assert await plan(hives, uid) == "free"


async def test_a_replayed_webhook_is_refused(hives: Called) -> None:
    uid, number = await ada(hives)
    body, signature = stripe.signed(stripe.subscription("created", NOW, "1", user=number), age=3600)
    refused = await hives.call(
        "POST", STRIPE, content=body, headers={"Stripe-Signature": signature}
    )
    assert refused.status_code == 403
    assert await plan(hives, uid) == "free"


async def test_a_notification_of_apples_gives_the_plan_once(hives: Called, store: AppStore) -> None:
    uid, number = await ada(hives)
    token = (await hives.call("GET", "/v1/payments/apple/account-token", uid)).json()["token"]
    assert token == str(account_token(number))
    body = store.notification("SUBSCRIBED", at=NOW, transaction={"appAccountToken": token})
    outcomes = [(await hives.call("POST", APPLE, content=body)).json()["outcome"] for _ in range(2)]
    assert outcomes == ["applied", "seen"]
    assert await plan(hives, uid) == "premium"


async def test_a_forged_notification_is_refused(hives: Called) -> None:
    body = AppStore().notification("SUBSCRIBED", at=NOW)
    assert (await hives.call("POST", APPLE, content=body)).status_code == 403


async def test_a_plan_is_bought_from_the_test_provider(hives: Called) -> None:
    uid, _ = await ada(hives)
    bought = await hives.call("POST", "/v1/payments/test/purchase", uid, json={"plan": "basic"})
    assert bought.status_code == 201
    assert bought.json()["plan"] == "basic"
    assert await plan(hives, uid) == "basic"


@pytest.mark.parametrize("wanted", ["business", "ultimate"])
async def test_a_plan_that_is_none_for_them_is_not_sold(hives: Called, wanted: str) -> None:
    uid, _ = await ada(hives)
    refused = await hives.call("POST", "/v1/payments/test/purchase", uid, json={"plan": wanted})
    assert refused.status_code == 422


async def test_in_production_nothing_is_given_away(embedded_template: str, tmp_path: Path) -> None:
    with copy_of(embedded_template) as url:
        async with called(url, tmp_path, production=True) as hives:
            uid, _ = await ada(hives)
            wanted = {"plan": "basic"}
            for path in ("/v1/payments/test/purchase", "/v1/payments/test/webhook"):
                refused = await hives.call("POST", path, uid, json=wanted)
                assert refused.status_code == 501
