"""A webhook is read when its provider has signed it, and refused otherwise."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock_hives.billing.apple import AppleWebhooks, verifier_for
from penstock_hives.billing.development import DevelopmentProvider
from penstock_hives.billing.models import (
    SubscriptionOwner,
    SubscriptionStatus,
    TransactionKind,
    WebhookRefused,
    account_token,
    amount_of,
    user_of_account_token,
)
from penstock_hives.billing.stripe import StripeWebhooks
from tests.hives.app.payments import stripe
from tests.hives.app.payments.apple import BUNDLE, AppStore, ms

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def store() -> AppStore:
    return AppStore()


@pytest.fixture(scope="module")
def apple(store: AppStore) -> AppleWebhooks:
    verifier = verifier_for(BUNDLE, None, "Sandbox", [store.root], production=False)
    return AppleWebhooks(verifier, {})


@pytest.fixture
def webhooks() -> StripeWebhooks:
    return StripeWebhooks(["whsec_the_next", stripe.SECRET], {"price_7": "basic"})


def test_stripe_tells_how_a_subscription_stands(webhooks: StripeWebhooks) -> None:
    event = webhooks.read(*stripe.signed(stripe.subscription("created", NOW, "1", user=7)))

    assert (event.id, event.at, event.ref) == ("evt_1", NOW, "sub_1")
    assert event.owner == SubscriptionOwner(user_id=7)
    assert event.state is not None
    assert (event.state.status, event.state.plan) == (SubscriptionStatus.ACTIVE, "premium")
    assert event.state.expires_at == NOW + timedelta(days=30)


def test_a_price_may_be_given_a_plan(webhooks: StripeWebhooks) -> None:
    document = stripe.subscription("created", NOW, "1")
    document["data"]["object"]["items"]["data"][0]["price"] = {"id": "price_7"}
    standing = webhooks.read(*stripe.signed(document)).state
    assert standing is not None
    assert standing.plan == "basic"


def test_a_subscription_that_will_not_be_renewed_is_cancelled(webhooks: StripeWebhooks) -> None:
    document = stripe.subscription("updated", NOW, "1", cancel_at_period_end=True)
    standing = webhooks.read(*stripe.signed(document)).state
    assert standing is not None
    assert (standing.status, standing.renews_at) == (SubscriptionStatus.CANCELLED, None)
    assert standing.expires_at == NOW + timedelta(days=30)


def test_a_first_payment_that_has_not_come_is_no_subscription(webhooks: StripeWebhooks) -> None:
    document = stripe.subscription("created", NOW, "1", status="incomplete")
    assert webhooks.read(*stripe.signed(document)).state is None


def test_stripe_tells_of_money(webhooks: StripeWebhooks) -> None:
    money = webhooks.read(*stripe.signed(stripe.invoice(NOW, "1"))).entry
    assert money is not None
    assert (money.kind, money.amount, money.currency) == (
        TransactionKind.PURCHASE,
        Decimal("4.99"),
        "EUR",
    )


def test_yen_have_no_cents() -> None:
    assert amount_of(500, "jpy") == 500


def test_a_webhook_somebody_else_signed_is_refused(webhooks: StripeWebhooks) -> None:
    body, signature = stripe.signed(stripe.invoice(NOW, "1"), secret="whsec_guessed")
    with pytest.raises(WebhookRefused, match="not Stripe's"):
        webhooks.read(body, signature)


def test_a_webhook_that_was_changed_is_refused(webhooks: StripeWebhooks) -> None:
    body, signature = stripe.signed(stripe.invoice(NOW, "1"))
    with pytest.raises(WebhookRefused, match="not Stripe's"):
        webhooks.read(body.replace(b"499", b"001"), signature)


def test_a_recorded_webhook_sent_again_later_is_refused(webhooks: StripeWebhooks) -> None:
    with pytest.raises(WebhookRefused, match="tolerance"):
        webhooks.read(*stripe.signed(stripe.invoice(NOW, "1"), age=4000))


@pytest.mark.parametrize("signature", [None, "", "t=1", "t=x,v1=y", "v1=,t="])
def test_a_webhook_without_a_signature_is_refused(
    webhooks: StripeWebhooks, signature: str | None
) -> None:
    body, _ = stripe.signed(stripe.invoice(NOW, "1"))
    with pytest.raises(WebhookRefused):
        webhooks.read(body, signature)


@pytest.mark.parametrize("document", [[], 7, {"type": "invoice.paid"}, {"id": 1, "created": "x"}])
def test_what_is_signed_and_no_event_is_refused(webhooks: StripeWebhooks, document: Any) -> None:
    with pytest.raises(WebhookRefused, match="not a Stripe event"):
        webhooks.read(*stripe.signed(document))


def test_apple_tells_how_a_subscription_stands(apple: AppleWebhooks, store: AppStore) -> None:
    bought = {"appAccountToken": str(account_token(7))}
    event = apple.read(store.notification("SUBSCRIBED", "INITIAL_BUY", at=NOW, transaction=bought))

    assert event.ref == "2000001"
    assert event.owner == SubscriptionOwner(user_id=7)
    assert event.state is not None
    assert (event.state.status, event.state.plan) == (SubscriptionStatus.ACTIVE, "premium")
    assert event.state.expires_at == NOW + timedelta(days=30)
    assert event.entry is not None
    assert (event.entry.kind, event.entry.amount) == (TransactionKind.PURCHASE, Decimal("4.99"))


@pytest.mark.parametrize(
    ("kind", "subtype", "renewal", "status"),
    [
        ("DID_RENEW", None, {}, SubscriptionStatus.ACTIVE),
        ("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", {"autoRenewStatus": 0}, "cancelled"),
        ("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED", {}, SubscriptionStatus.ACTIVE),
        ("DID_FAIL_TO_RENEW", None, {}, SubscriptionStatus.PAST_DUE),
        ("EXPIRED", "VOLUNTARY", {"autoRenewStatus": 0}, SubscriptionStatus.EXPIRED),
        ("GRACE_PERIOD_EXPIRED", None, {}, SubscriptionStatus.EXPIRED),
        ("REFUND", None, {}, SubscriptionStatus.REFUNDED),
        ("REVOKE", None, {}, SubscriptionStatus.EXPIRED),
        ("REFUND_REVERSED", None, {}, SubscriptionStatus.ACTIVE),
    ],
)
def test_what_apple_says_has_a_meaning(
    apple: AppleWebhooks,
    store: AppStore,
    kind: str,
    subtype: str | None,
    renewal: dict[str, Any],
    status: str,
) -> None:
    standing = apple.read(store.notification(kind, subtype, at=NOW, renewal=renewal)).state
    assert standing is not None
    assert standing.status == status


def test_in_a_grace_period_a_subscription_goes_on(apple: AppleWebhooks, store: AppStore) -> None:
    until = NOW + timedelta(days=16)
    told = store.notification(
        "DID_FAIL_TO_RENEW",
        "GRACE_PERIOD",
        at=NOW,
        transaction={"expiresDate": ms(NOW)},
        renewal={"gracePeriodExpiresDate": ms(until)},
    )
    standing = apple.read(told).state
    assert standing is not None
    assert standing.expires_at == until


def test_a_notification_of_another_store_is_refused(apple: AppleWebhooks) -> None:
    with pytest.raises(WebhookRefused, match="not Apple's"):
        apple.read(AppStore().notification("SUBSCRIBED", at=NOW))


def test_a_notification_about_another_app_is_refused(apple: AppleWebhooks, store: AppStore) -> None:
    with pytest.raises(WebhookRefused, match="app identifier"):
        apple.read(store.notification("SUBSCRIBED", at=NOW, bundle="app.wasps"))


def test_a_transaction_nobody_signed_is_refused(apple: AppleWebhooks, store: AppStore) -> None:
    own = jwt.encode(
        {"bundleId": BUNDLE, "environment": "Sandbox"},
        ec.generate_private_key(ec.SECP256R1()),
        algorithm="ES256",
    )
    data = {"bundleId": BUNDLE, "environment": "Sandbox", "signedTransactionInfo": own}
    document = {"notificationUUID": "1", "signedDate": ms(NOW), "data": data}
    with pytest.raises(WebhookRefused, match="not Apple's"):
        apple.read(json.dumps({"signedPayload": store.signed(document)}).encode())


def test_an_old_notification_sent_again_is_refused(apple: AppleWebhooks, store: AppStore) -> None:
    with pytest.raises(WebhookRefused, match="days old"):
        apple.read(store.notification("SUBSCRIBED", at=NOW - timedelta(days=5)))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"signedPayload": 7}', b"\xff"])
def test_what_is_no_notification_is_refused(apple: AppleWebhooks, body: bytes) -> None:
    with pytest.raises(WebhookRefused):
        apple.read(body)


@pytest.mark.parametrize("user", [1, 7, 2**59])
def test_an_account_token_says_whose_it_is(user: int) -> None:
    assert user_of_account_token(str(account_token(user))) == user


@pytest.mark.parametrize("token", [None, "", "x", "00000000-0000-0000-0000-000000000007"])
def test_another_account_token_is_nobodys(token: str | None) -> None:
    assert user_of_account_token(token) is None


def test_the_test_provider_signs_too() -> None:
    provider = DevelopmentProvider(production=False)
    body, signature = provider.webhook(
        SubscriptionOwner(user_id=7), "premium", SubscriptionStatus.ACTIVE, 499
    )

    assert provider.read(body, signature).owner == SubscriptionOwner(user_id=7)
    with pytest.raises(WebhookRefused, match="wrong"):
        provider.read(body.replace(b"premium", b"ultimate"), signature)
    with pytest.raises(WebhookRefused, match="wrong"):
        DevelopmentProvider(production=False).read(body, signature)


def test_a_recorded_test_webhook_sent_again_later_is_refused() -> None:
    now = 1_800_000_000.0
    provider = DevelopmentProvider(production=False, secret="s", clock=lambda: now)
    recorded = provider.webhook(SubscriptionOwner(user_id=7), "premium", SubscriptionStatus.ACTIVE)
    later = DevelopmentProvider(production=False, secret="s", clock=lambda: now + 301)
    with pytest.raises(WebhookRefused, match="old"):
        later.read(*recorded)
