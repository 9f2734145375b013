"""App Store notifications, version 2: signatures checked up to the root, then read as an
`BillingEvent`.

Apple signs the notification, and in it the transaction and what is known of its renewal, each on
its own; all are verified up to the root certificates of the configuration. The library also knows
environments that are not signed at all (Xcode, LocalTesting): they exist here in tests only, and
never in production. Whose a purchase is comes from an *account token* (`models.py`).
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

UNSIGNED: Final = frozenset({Environment.XCODE, Environment.LOCAL_TESTING})
#: Apple tries again for three days; what is older was recorded and is sent again by somebody.
OLDEST: Final = timedelta(days=4)

_Transaction = JWSTransactionDecodedPayload
_Renewal = JWSRenewalInfoDecodedPayload

_MONEY: Final = {
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
_STANDING: Final = frozenset(
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
    """Reads notifications about one app; `plans` names ours by Apple's products."""

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
            raise WebhookRefused(f"this is no notification of Apple's: {error!r}") from error
        if not notice.notificationUUID or not notice.signedDate:
            raise WebhookRefused("the notification has no id, or no date")
        at = _moment(notice.signedDate)
        if at < datetime.fromtimestamp(self._clock(), UTC) - OLDEST:
            raise WebhookRefused("the notification is days old: Apple does not send those")
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
            standing=self._standing(event.at, kind, transaction, renewal),
            money=_money(kind, subtype, transaction),
            payload=_payload(transaction, renewal),
        )

    def _standing(
        self, at: datetime, kind: Type, transaction: _Transaction, renewal: _Renewal | None
    ) -> SubscriptionState | None:
        if kind not in _STANDING:
            return None
        status = _status(kind, renewal)
        end = _moment_or_none(transaction.expiresDate)
        grace = _moment_or_none(renewal.gracePeriodExpiresDate if renewal else None)
        if status in _OVER.values():
            end = _moment_or_none(transaction.revocationDate) or min(end or at, at)
        elif status is SubscriptionStatus.PAST_DUE and grace is not None:
            end = grace
        return SubscriptionState(
            status,
            self._plan(transaction.productId),
            _moment_or_none(transaction.originalPurchaseDate),
            end if status is SubscriptionStatus.ACTIVE else None,
            at if status is SubscriptionStatus.CANCELLED else None,
            end,
        )

    def _plan(self, product: str | None) -> str | None:
        """By the product's id; else its last word, as in `app.hives.premium`."""
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


def _money(kind: Type, subtype: Subtype | None, transaction: _Transaction) -> LedgerEntry | None:
    found = _MONEY.get(kind)
    if subtype is Subtype.AUTO_RENEW_DISABLED:
        found = TransactionKind.CANCEL
    if found is None:
        return None
    paid = found in (TransactionKind.PURCHASE, TransactionKind.RENEWAL, TransactionKind.REFUND)
    # Thousandths of the currency's unit.
    amount = Decimal(transaction.price or 0).scaleb(-3) if paid else Decimal(0)
    return LedgerEntry(found, amount, transaction.currency or "EUR")


def _payload(transaction: _Transaction, renewal: _Renewal | None) -> dict[str, Any]:
    """What there was to read, without what is not for keeping: signatures, and what is empty."""
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
    """A verifier for one app, up to these root certificates (DER)."""
    try:
        chosen = Environment(environment)
    except ValueError:
        allowed = ", ".join(each.value for each in Environment)
        raise ConfigurationError(f"{environment!r} is none of Apple's: {allowed}") from None
    if chosen in UNSIGNED and production:
        raise ConfigurationError(
            f"notifications of {chosen.value} are not signed by anyone: not in production"
        )
    if chosen not in UNSIGNED and not roots:
        raise ConfigurationError("Apple's root certificates are needed to check its signatures")
    if chosen is Environment.PRODUCTION and app_id is None:
        raise ConfigurationError("the number of the app in the App Store is needed in production")
    # Whether certificates were revoked would be asked over the network for every notification.
    return SignedDataVerifier(list(roots), False, chosen, bundle, app_id)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _moment_or_none(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _moment(milliseconds)
