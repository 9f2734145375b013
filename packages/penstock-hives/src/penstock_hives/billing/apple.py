"""App Store server notifications, version 2: verification, and decoding to a `BillingEvent`.

Notification, transaction and renewal info are signed separately; all are verified up to the
configured root certificates. Apple's library also has unsigned environments (Xcode, LocalTesting),
which are refused in production. The owner is in the account token (`models.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from appstoreserverlibrary.models.Environment import Environment
from appstoreserverlibrary.models.JWSRenewalInfoDecodedPayload import JWSRenewalInfoDecodedPayload
from appstoreserverlibrary.models.JWSTransactionDecodedPayload import JWSTransactionDecodedPayload
from appstoreserverlibrary.models.NotificationTypeV2 import NotificationTypeV2 as Type
from appstoreserverlibrary.models.Subtype import Subtype
from appstoreserverlibrary.signed_data_verifier import SignedDataVerifier, VerificationException

from penstock.core.errors import ConfigurationError
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
from penstock_hives.encoding import from_unix

UNSIGNED: Final = frozenset({Environment.XCODE, Environment.LOCAL_TESTING})
#: Apple retries for three days; older notifications are replays.
OLDEST: Final = timedelta(days=4)

_Transaction = JWSTransactionDecodedPayload
_Renewal = JWSRenewalInfoDecodedPayload

_ENTRIES: Final = {
    Type.SUBSCRIBED: TransactionKind.PURCHASE,
    Type.OFFER_REDEEMED: TransactionKind.PURCHASE,
    Type.DID_RENEW: TransactionKind.RENEWAL,
    Type.EXPIRED: TransactionKind.EXPIRE,
    Type.GRACE_PERIOD_EXPIRED: TransactionKind.EXPIRE,
    Type.REFUND: TransactionKind.REFUND,
    Type.REVOKE: TransactionKind.EXPIRE,
}
_OVER: Final = {
    Type.EXPIRED: SubscriptionStatus.EXPIRED,
    Type.GRACE_PERIOD_EXPIRED: SubscriptionStatus.EXPIRED,
    Type.REVOKE: SubscriptionStatus.EXPIRED,
    Type.REFUND: SubscriptionStatus.REFUNDED,
}
_WITH_STATE: Final = frozenset(
    {
        *_OVER,
        Type.SUBSCRIBED,
        Type.OFFER_REDEEMED,
        Type.DID_RENEW,
        Type.DID_FAIL_TO_RENEW,
        Type.DID_CHANGE_RENEWAL_PREF,
        Type.DID_CHANGE_RENEWAL_STATUS,
        Type.RENEWAL_EXTENDED,
        Type.REFUND_REVERSED,
    }
)


class AppleWebhooks:
    """`plans` maps products of Apple to our plans."""

    def __init__(
        self,
        verifier: SignedDataVerifier,
        plans: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verifier = verifier
        self._plans = plans
        self._clock = clock

    def read(self, body: bytes) -> BillingEvent:
        try:
            signed = json.loads(body)["signedPayload"]
            notice = self._verifier.verify_and_decode_notification(signed)
            data = notice.data
            transaction = renewal = None
            if data is not None and data.signedTransactionInfo:
                transaction = self._verifier.verify_and_decode_signed_transaction(
                    data.signedTransactionInfo
                )
            if data is not None and data.signedRenewalInfo:
                renewal = self._verifier.verify_and_decode_renewal_info(data.signedRenewalInfo)
        except VerificationException as error:
            reason = error.status.name.lower().replace("_", " ")
            raise WebhookRefused(f"the notification is not Apple's: {reason}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise WebhookRefused(f"not an App Store notification: {error!r}") from error
        if not notice.notificationUUID or not notice.signedDate:
            raise WebhookRefused("the notification has no id or no date")
        at = datetime.fromtimestamp(notice.signedDate / 1000, UTC)
        if at < datetime.fromtimestamp(self._clock(), UTC) - OLDEST:
            raise WebhookRefused("the notification is days old")
        kind, subtype = notice.notificationType, notice.subtype
        name = ".".join(filter(None, (notice.rawNotificationType, notice.rawSubtype)))
        event = BillingEvent(PaymentProvider.APPLE, notice.notificationUUID, at, name)
        if kind is None or transaction is None:
            return event
        return self._of_transaction(event, kind, subtype, transaction, renewal)

    def _of_transaction(
        self,
        event: BillingEvent,
        kind: Type,
        subtype: Subtype | None,
        transaction: _Transaction,
        renewal: _Renewal | None,
    ) -> BillingEvent:
        user = user_of_account_token(transaction.appAccountToken)
        return BillingEvent(
            event.provider,
            event.id,
            event.at,
            event.name,
            ref=transaction.originalTransactionId,
            owner=None if user is None else SubscriptionOwner(user_id=user),
            state=self._state(event.at, kind, transaction, renewal),
            entry=_entry(kind, subtype, transaction),
            payload=_payload(transaction, renewal),
        )

    def _state(
        self, at: datetime, kind: Type, transaction: _Transaction, renewal: _Renewal | None
    ) -> SubscriptionState | None:
        if kind not in _WITH_STATE:
            return None
        status = _status(kind, renewal)
        end = _from_milliseconds(transaction.expiresDate)
        grace = _from_milliseconds(renewal.gracePeriodExpiresDate if renewal else None)
        if status in _OVER.values():
            end = _from_milliseconds(transaction.revocationDate) or min(end or at, at)
        elif status is SubscriptionStatus.PAST_DUE and grace is not None:
            end = grace
        return SubscriptionState(
            status,
            self._plan(transaction.productId),
            _from_milliseconds(transaction.originalPurchaseDate),
            end if status is SubscriptionStatus.ACTIVE else None,
            at if status is SubscriptionStatus.CANCELLED else None,
            end,
        )

    def _plan(self, product: str | None) -> str | None:
        """By the product id; else its last part, as in `app.hives.premium`."""
        if not product:
            return None
        return self._plans.get(product) or product.rpartition(".")[2]


def _status(kind: Type, renewal: _Renewal | None) -> SubscriptionStatus:
    if kind in _OVER:
        return _OVER[kind]
    if kind is Type.DID_FAIL_TO_RENEW:
        return SubscriptionStatus.PAST_DUE
    stopped = renewal is not None and renewal.rawAutoRenewStatus == 0
    return SubscriptionStatus.CANCELLED if stopped else SubscriptionStatus.ACTIVE


def _entry(kind: Type, subtype: Subtype | None, transaction: _Transaction) -> LedgerEntry | None:
    found = _ENTRIES.get(kind)
    if subtype is Subtype.AUTO_RENEW_DISABLED:
        found = TransactionKind.CANCEL
    if found is None:
        return None
    paid = found in (TransactionKind.PURCHASE, TransactionKind.RENEWAL, TransactionKind.REFUND)
    # The price is in thousandths.
    amount = Decimal(transaction.price or 0).scaleb(-3) if paid else Decimal(0)
    return LedgerEntry(found, amount, transaction.currency or "EUR")


def _payload(transaction: _Transaction, renewal: _Renewal | None) -> dict[str, Any]:
    """Without signatures and empty fields."""
    parts = {"transaction": transaction, "renewal": renewal}
    return {
        name: {slot: v for slot in _slots(part) if isinstance(v := getattr(part, slot), str | int)}
        for name, part in parts.items()
        if part is not None
    }


def _slots(part: Any) -> list[str]:
    return [field.name for field in type(part).__attrs_attrs__]


def verifier_for(
    bundle: str,
    app_id: int | None,
    environment: str,
    roots: Sequence[bytes],
    *,
    production: bool,
) -> SignedDataVerifier:
    """For one app, with root certificates in DER format."""
    try:
        chosen = Environment(environment)
    except ValueError:
        allowed = ", ".join(each.value for each in Environment)
        raise ConfigurationError(
            f"the environment must be one of {allowed}, got {environment!r}"
        ) from None
    if chosen in UNSIGNED and production:
        raise ConfigurationError(
            f"environment {chosen.value} is not signed: not allowed in production"
        )
    if chosen not in UNSIGNED and not roots:
        raise ConfigurationError(
            "Apple's root certificates are required (PENSTOCK_HIVES_PAYMENTS_APPLE_ROOTS)"
        )
    if chosen is Environment.PRODUCTION and app_id is None:
        raise ConfigurationError(
            "the id of the app is required in production (PENSTOCK_HIVES_PAYMENTS_APPLE_ID)"
        )
    # No online revocation checks: they would need the network for every notification.
    return SignedDataVerifier(list(roots), False, chosen, bundle, app_id)


def _from_milliseconds(milliseconds: int | None) -> datetime | None:
    return from_unix(None if milliseconds is None else milliseconds / 1000)
