"""Real-time developer notifications of Google Play, delivered by Pub/Sub as push messages.

The push has a token that Google has signed for our endpoint; it is verified with Google's keys. A
notification only names a purchase, so its state is read from the Play Developer API. The account of
the buyer is the `obfuscatedExternalAccountId` that the app passed with the purchase: the same
account token as for the App Store.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Protocol
from urllib.parse import quote

from penstock.core.errors import AuthenticationFailed
from penstock_hives.billing.models import (
    BillingEvent,
    LedgerEntry,
    PaymentProvider,
    SubscriptionOwner,
    SubscriptionState,
    SubscriptionStatus,
    TransactionKind,
    WebhookRefused,
    user_of_account_token,
)
from penstock_hives.identity.tokens import IdentityVerifier

ISSUER: Final = "https://accounts.google.com"
KEYS: Final = "https://www.googleapis.com/oauth2/v3/certs"
_STATES: Final = {
    "SUBSCRIPTION_STATE_ACTIVE": SubscriptionStatus.ACTIVE,
    "SUBSCRIPTION_STATE_IN_GRACE_PERIOD": SubscriptionStatus.PAST_DUE,
    "SUBSCRIPTION_STATE_ON_HOLD": SubscriptionStatus.EXPIRED,
    "SUBSCRIPTION_STATE_PAUSED": SubscriptionStatus.EXPIRED,
    "SUBSCRIPTION_STATE_CANCELED": SubscriptionStatus.CANCELLED,
    "SUBSCRIPTION_STATE_EXPIRED": SubscriptionStatus.EXPIRED,
}
#: Types of subscription notifications → transactions.
_ENTRIES: Final = {
    2: TransactionKind.RENEWAL,
    3: TransactionKind.CANCEL,
    4: TransactionKind.PURCHASE,
    12: TransactionKind.REFUND,
    13: TransactionKind.EXPIRE,
}
_REVOKED: Final = 12
Document = Mapping[str, Any]


class PlayPurchases(Protocol):
    """The Play Developer API: the state of a subscription by its purchase token."""

    async def subscription(self, package: str, token: str) -> Document: ...


class PushVerifier(Protocol):
    """Checks the token of a push; raises `WebhookRefused`."""

    async def verify(self, authorization: str | None) -> None: ...


class GoogleWebhooks:
    def __init__(
        self,
        package: str,
        verifier: PushVerifier,
        purchases: PlayPurchases,
        plans: Mapping[str, str],
    ) -> None:
        """`plans` maps products of Google Play to our plans."""
        self._package = package
        self._verifier = verifier
        self._purchases = purchases
        self._plans = plans

    async def read(self, body: bytes, authorization: str | None) -> BillingEvent:
        await self._verifier.verify(authorization)
        try:
            push = json.loads(body)["message"]
            document = json.loads(base64.b64decode(push["data"], validate=True))
            number = str(push.get("messageId") or push["message_id"])
            at = datetime.fromtimestamp(int(document["eventTimeMillis"]) / 1000, UTC)
            package = document["packageName"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WebhookRefused(f"not a notification of Google Play: {error!r}") from error
        if package != self._package:
            raise WebhookRefused(f"the notification is about {package}, not {self._package}")
        told = document.get("subscriptionNotification")
        if told is None:  # a test, or a product that is no subscription
            name = "google.test" if "testNotification" in document else "google.other"
            return BillingEvent(PaymentProvider.GOOGLE, number, at, name, payload=document)
        try:
            kind, token = int(told["notificationType"]), str(told["purchaseToken"])
        except (KeyError, TypeError, ValueError) as error:
            raise WebhookRefused(f"not a notification of Google Play: {error!r}") from error
        held = await self._purchases.subscription(package, token)
        return self._event(number, at, kind, token, document, held)

    def _event(
        self, number: str, at: datetime, kind: int, token: str, document: Document, held: Document
    ) -> BillingEvent:
        items = held.get("lineItems") or [{}]
        product = str(items[0].get("productId", ""))
        status = _STATES.get(str(held.get("subscriptionState")))
        if kind == _REVOKED:
            status = SubscriptionStatus.REFUNDED
        ends = _moment(items[0].get("expiryTime"))
        renews = bool((items[0].get("autoRenewingPlan") or {}).get("autoRenewEnabled"))
        state = (
            None
            if status is None
            else SubscriptionState(
                status,
                self._plans.get(product, product),
                _moment(held.get("startTime")),
                ends if renews and status is SubscriptionStatus.ACTIVE else None,
                at if status is SubscriptionStatus.CANCELLED else None,
                at if status is SubscriptionStatus.REFUNDED else ends,
            )
        )
        entry = _ENTRIES.get(kind)
        return BillingEvent(
            PaymentProvider.GOOGLE,
            number,
            at,
            f"google.subscription.{kind}",
            ref=token,
            owner=_owner(held),
            state=state,
            entry=None if entry is None else LedgerEntry(entry, *_price(items[0])),
            payload=document,
        )


def _owner(held: Document) -> SubscriptionOwner | None:
    ids = held.get("externalAccountIdentifiers") or {}
    user = user_of_account_token(ids.get("obfuscatedExternalAccountId"))
    return None if user is None else SubscriptionOwner(user_id=user)


def _price(item: Document) -> tuple[Decimal, str]:
    """0 EUR if the purchase does not say."""
    price = (item.get("autoRenewingPlan") or {}).get("recurringPrice") or {}
    amount = Decimal(str(price.get("units") or 0)) + Decimal(int(price.get("nanos") or 0)) / 10**9
    return amount.quantize(Decimal("0.01")), str(price.get("currencyCode") or "EUR")


def _moment(text: Any) -> datetime | None:
    return None if not text else datetime.fromisoformat(str(text).replace("Z", "+00:00"))


class GooglePushVerifier:
    """Tokens that Google signs for pushes of a service account to our endpoint."""

    def __init__(self, tokens: IdentityVerifier, account: str) -> None:
        """`tokens` verifies issuer, audience (our endpoint), times and signature."""
        self._tokens = tokens
        self._account = account

    async def verify(self, authorization: str | None) -> None:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise WebhookRefused("the notification has no token")
        try:
            claims = (await self._tokens.verify(token)).claims
        except AuthenticationFailed as error:
            raise WebhookRefused(f"the notification is not Google's: {error}") from error
        if claims.get("email") != self._account or claims.get("email_verified") is not True:
            raise WebhookRefused(f"the notification was not sent by {self._account}")


class PlayDeveloperApi:
    """Reads purchases as a service account, from its key file."""

    ADDRESS: Final = "https://androidpublisher.googleapis.com/androidpublisher/v3/applications"
    SCOPE: Final = "https://www.googleapis.com/auth/androidpublisher"

    def __init__(self, credentials: Any, address: str = ADDRESS) -> None:
        from google.auth.transport.requests import AuthorizedSession

        self._session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        self._address = address

    async def subscription(self, package: str, token: str) -> Document:
        path = f"{package}/purchases/subscriptionsv2/tokens/{quote(token, safe='')}"
        answer = await asyncio.to_thread(self._session.get, f"{self._address}/{path}", timeout=20.0)
        if answer.status_code == 404:
            raise WebhookRefused("the purchase is not known to Google Play")
        answer.raise_for_status()
        found: Document = answer.json()
        return found
