"""A payment provider for development: signed webhooks, no payments, refused in production."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock.core.units import parse_count
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

TOLERANCE: Final = 300.0
PERIOD: Final = timedelta(days=30)


class DevelopmentProvider:
    def __init__(
        self,
        *,
        production: bool,
        secret: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if production:
            raise ConfigurationError("the test provider is not allowed in production")
        self._secret = (secret or secrets.token_hex(32)).encode()
        self._clock = clock

    def webhook(
        self,
        owner: SubscriptionOwner,
        plan: str,
        status: SubscriptionStatus,
        cents: int = 0,
        ref: str | None = None,
    ) -> tuple[bytes, str]:
        """The body and signature of a webhook."""
        now = self._clock()
        document = {
            "id": f"evt_{secrets.token_hex(12)}",
            "at": now,
            "ref": ref or f"test_{secrets.token_hex(8)}",
            "user_id": owner.user_id,
            "account_id": owner.account_id,
            "plan": plan,
            "status": status,
            "cents": cents,
        }
        body = json.dumps(document).encode()
        return body, self._signed(body, int(now))

    def read(self, body: bytes, signature: str | None) -> BillingEvent:
        stamp = parse_count((signature or "").partition(",")[0].removeprefix("t="))
        if stamp is None or abs(self._clock() - stamp) > TOLERANCE:
            raise WebhookRefused("the webhook has no signature or an old one")
        if not hmac.compare_digest(self._signed(body, stamp), signature or ""):
            raise WebhookRefused("the webhook's signature is wrong")
        try:
            return _event(json.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            raise WebhookRefused(f"not an event of the test provider: {error!r}") from error

    def _signed(self, body: bytes, stamp: int) -> str:
        mac = hmac.new(self._secret, b"%d." % stamp + body, hashlib.sha256)
        return f"t={stamp},v1={mac.hexdigest()}"


_ENTRIES: Final = {
    SubscriptionStatus.ACTIVE: TransactionKind.PURCHASE,
    SubscriptionStatus.CANCELLED: TransactionKind.CANCEL,
    SubscriptionStatus.EXPIRED: TransactionKind.EXPIRE,
    SubscriptionStatus.REFUNDED: TransactionKind.REFUND,
}


def _event(document: Any) -> BillingEvent:
    at = datetime.fromtimestamp(float(document["at"]), UTC)
    status = SubscriptionStatus(document["status"])
    over = status in (SubscriptionStatus.EXPIRED, SubscriptionStatus.REFUNDED)
    end = at if over else at + PERIOD
    state = SubscriptionState(
        status,
        str(document["plan"]),
        started_at=at,
        renews_at=end if status is SubscriptionStatus.ACTIVE else None,
        cancelled_at=at if status is SubscriptionStatus.CANCELLED else None,
        expires_at=end,
    )
    kind = _ENTRIES.get(status)
    return BillingEvent(
        PaymentProvider.TEST,
        str(document["id"]),
        at,
        f"test.{status}",
        ref=str(document["ref"]),
        owner=SubscriptionOwner.of(document),
        state=state,
        entry=None if kind is None else LedgerEntry(kind, amount_of(int(document["cents"]), "EUR")),
        payload=document,
    )
