"""Checkout and customer portal at a simulated Stripe, and notifications of Google Play."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from penstock.core.errors import NotFound
from penstock_hives.billing.checkout import CheckoutService
from penstock_hives.billing.google import ISSUER, GooglePushVerifier, GoogleWebhooks
from penstock_hives.billing.models import SubscriptionOwner, WebhookRefused, account_token
from penstock_hives.billing.service import EventOutcome, PaymentService
from penstock_hives.billing.settings import PaymentSettings, open_providers
from penstock_hives.database import DatabasePool
from penstock_hives.errors import InvalidRequest, NotConfigured, NotReady
from penstock_hives.identity.tokens import TokenVerifier
from tests.hives.app.identity import given as a
from tests.hives.app.payments import stripe

ADA = SubscriptionOwner(user_id=1)
BACK = "https://hives.example/plan"
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


class StripeServer(BaseHTTPRequestHandler):
    """Answers as the two endpoints do, and keeps what it was asked."""

    asked: ClassVar[list[tuple[str, str, dict[str, list[str]]]]] = []
    status = 200

    def do_POST(self) -> None:
        length = int(self.headers["content-length"] or 0)
        form = parse_qs(self.rfile.read(length).decode())
        type(self).asked.append((self.path, self.headers["authorization"], form))
        kind = "checkout.session" if "checkout" in self.path else "billing_portal.session"
        document = {"id": "x_1", "object": kind, "url": "https://stripe.example/pay"}
        body = json.dumps(document if self.status == 200 else {"error": {"message": "no"}})
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def simulated() -> Iterator[str]:
    StripeServer.asked, StripeServer.status = [], 200
    with HTTPServer(("127.0.0.1", 0), StripeServer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def checkout(pool: DatabasePool, **given: Any) -> CheckoutService:
    settings = PaymentSettings(plans={"price_1": "premium"}, **given)
    return CheckoutService(pool, open_providers(settings, production=False), lambda: NOW)


async def test_the_checkout_says_what_is_bought_and_for_whom(
    pool: DatabasePool, simulated: str
) -> None:
    buying = checkout(pool, stripe_key="sk_1", stripe_api=simulated)

    assert await buying.begin(ADA, "premium", BACK) == "https://stripe.example/pay"

    [(path, key, form)] = StripeServer.asked
    assert (path, key) == ("/v1/checkout/sessions", "Bearer sk_1")
    assert form["line_items[0][price]"] == ["price_1"]
    assert form["subscription_data[metadata][user_id]"] == form["metadata[user_id]"] == ["1"]
    assert form["success_url"] == [BACK]


async def test_what_cannot_be_bought_is_refused(pool: DatabasePool, simulated: str) -> None:
    buying = checkout(pool, stripe_key="sk_1", stripe_api=simulated)
    for plan in ("free", "business", "nothing"):
        with pytest.raises(InvalidRequest):
            await buying.begin(ADA, plan, BACK)
    with pytest.raises(NotConfigured, match="has no price"):
        await buying.begin(ADA, "basic", BACK)
    StripeServer.status = 400
    with pytest.raises(NotReady, match="try again later"):
        await buying.begin(ADA, "premium", BACK)


async def test_the_portal_is_of_the_customer_of_the_subscription(
    pool: DatabasePool, simulated: str
) -> None:
    buying = checkout(
        pool,
        stripe_key="sk_1",
        stripe_api=simulated,
        stripe_secrets=[stripe.SECRET],
    )
    with pytest.raises(NotFound):
        await buying.portal(ADA, BACK)
    providers = open_providers(PaymentSettings(stripe_secrets=[stripe.SECRET]), production=False)
    assert providers.stripe is not None
    told = stripe.subscription("created", NOW, "1", customer="cus_7")
    await PaymentService(pool).apply(providers.stripe.read(*stripe.signed(told)))

    await buying.portal(ADA, BACK)

    [(path, _, form)] = StripeServer.asked
    assert (path, form["customer"]) == ("/v1/billing_portal/sessions", ["cus_7"])


async def test_without_stripe_a_development_machine_sells_at_once(pool: DatabasePool) -> None:
    assert await checkout(pool).begin(ADA, "premium", BACK) == BACK
    assert (await PaymentService(pool).entitlement(ADA)).plan == "premium"
    with pytest.raises(NotConfigured):
        await checkout(pool).portal(ADA, BACK)


AUDIENCE = "https://hives.example/v1/payments/google/webhook"
SENDER = "pubsub@hives.example"
PACKAGE = "example.hives"


class Purchases:
    def __init__(self, **changed: Any) -> None:
        price = {"currencyCode": "EUR", "units": "4", "nanos": 990_000_000}
        self.held = {
            "subscriptionState": "SUBSCRIPTION_STATE_ACTIVE",
            "startTime": "2027-01-01T00:00:00Z",
            "externalAccountIdentifiers": {"obfuscatedExternalAccountId": str(account_token(1))},
            "lineItems": [
                {
                    "productId": "gold",
                    "expiryTime": "2027-02-01T00:00:00Z",
                    "autoRenewingPlan": {"autoRenewEnabled": True, "recurringPrice": price},
                }
            ],
            **changed,
        }

    async def subscription(self, package: str, token: str) -> Mapping[str, Any]:
        return self.held


def google(purchases: Purchases) -> GoogleWebhooks:
    tokens = TokenVerifier(ISSUER, AUDIENCE, a.HeldKeys(a.KEY), lambda: a.NOW)
    verifier = GooglePushVerifier(tokens, SENDER)
    return GoogleWebhooks(PACKAGE, verifier, purchases, {"gold": "premium"})


def token(**changed: Any) -> str:
    told = {"iss": ISSUER, "aud": AUDIENCE, "email": SENDER, "email_verified": True, **changed}
    return f"Bearer {a.token(**told)}"


def push(kind: int, number: str = "1", package: str = PACKAGE) -> bytes:
    told = {
        "version": "1.0",
        "packageName": package,
        "eventTimeMillis": str(int(NOW.timestamp() * 1000) + int(number)),
        "subscriptionNotification": {"notificationType": kind, "purchaseToken": "t1"},
    }
    data = base64.b64encode(json.dumps(told).encode()).decode()
    return json.dumps({"message": {"data": data, "messageId": number}}).encode()


async def test_a_purchase_in_google_play_is_a_subscription(pool: DatabasePool) -> None:
    payments = PaymentService(pool, lambda: NOW)
    bought = await google(Purchases()).read(push(4), token())
    assert await payments.apply(bought) is EventOutcome.APPLIED
    assert await payments.apply(bought) is EventOutcome.SEEN
    assert (await payments.entitlement(ADA)).plan == "premium"
    row = await pool.row("SELECT kind, amount::text AS amount FROM transaction")
    assert row == {"kind": "purchase", "amount": "4.99"}

    revoked = await google(Purchases()).read(push(12, "2"), token())
    await payments.apply(revoked)
    assert (await payments.entitlement(ADA)).plan == "free"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Basic x",
        token(email="eve@example.org"),
        token(email_verified=False),
        token(aud="https://eve.example"),
        token(iss="https://eve.example"),
        f"Bearer {a.unsigned({'alg': 'none', 'kid': a.NAME})}",
    ],
)
async def test_a_push_that_google_has_not_signed_for_us_is_refused(
    authorization: str | None,
) -> None:
    with pytest.raises(WebhookRefused):
        await google(Purchases()).read(push(4), authorization)


async def test_a_push_about_another_app_or_about_nothing_is_refused() -> None:
    with pytest.raises(WebhookRefused, match=r"not example\.hives"):
        await google(Purchases()).read(push(4, package="example.wasps"), token())
    for body in (b"", b"{}", b'{"message": {"data": "!"}}', b"[]"):
        with pytest.raises(WebhookRefused):
            await google(Purchases()).read(body, token())
