"""Buying a plan: Stripe's checkout and customer portal; in development the test provider.

The user is redirected to a page of Stripe and returns. What was bought is applied by the webhooks,
never by the return. The metadata of the checkout says whose subscription it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock_hives.billing.models import SubscriptionOwner, SubscriptionStatus
from penstock_hives.billing.service import PaymentService, PlanService
from penstock_hives.database import DatabasePool
from penstock_hives.errors import NotConfigured, NotReady, invalid_field
from penstock_hives.people.permissions import Caller
from penstock_hives.people.repository import AuditRepository

if TYPE_CHECKING:
    from penstock_hives.billing.settings import PaymentProviders

log = get_logger(__name__)

#: Of a request to Stripe, in seconds.
TIMEOUT: Final = 20.0
#: The customer in the newest event of the owner's subscriptions.
_CUSTOMER: Final = """
    SELECT e.payload #>> '{data,object,customer}' AS customer
    FROM subscription s
    JOIN payment_event e ON e.provider = 'stripe' AND e.ref = s.provider_ref
    WHERE s.provider = 'stripe' AND e.payload #>> '{data,object,customer}' IS NOT NULL
      AND (s.user_id = %(user_id)s OR s.account_id = %(account_id)s)
    ORDER BY e.event_at DESC LIMIT 1
"""


class Checkout(Protocol):
    """Pages of a provider; both methods return a URL."""

    async def begin(self, owner: SubscriptionOwner, plan: str, back: str) -> str: ...

    async def portal(self, customer: str, back: str) -> str: ...


class StripeCheckout:
    """`prices` maps our plans to prices of Stripe."""

    def __init__(self, key: str, prices: Mapping[str, str], api: str | None = None) -> None:
        import stripe

        addresses: Any = {"api": api} if api else {}
        self._client = stripe.StripeClient(
            key,
            base_addresses=addresses,
            http_client=stripe.HTTPXClient(timeout=TIMEOUT, allow_sync_methods=True),
            max_network_retries=2,
        )
        self._errors = stripe.StripeError
        self._prices = prices

    async def begin(self, owner: SubscriptionOwner, plan: str, back: str) -> str:
        price = self._prices.get(plan)
        if price is None:
            raise NotConfigured(f"plan {plan} has no price (PENSTOCK_HIVES_PAYMENTS_PLANS)")
        whose = {name: str(value) for name, value in asdict(owner).items() if value is not None}
        given = {
            "mode": "subscription",
            "line_items": [{"price": price, "quantity": 1}],
            "success_url": back,
            "cancel_url": back,
            "metadata": whose,
            "subscription_data": {"metadata": whose},
        }
        return await self._url(self._client.v1.checkout.sessions.create, given)

    async def portal(self, customer: str, back: str) -> str:
        given = {"customer": customer, "return_url": back}
        return await self._url(self._client.v1.billing_portal.sessions.create, given)

    async def _url(self, create: Callable[..., Any], given: Mapping[str, Any]) -> str:
        try:
            session = await asyncio.to_thread(create, params=given)
        except self._errors as error:
            log.error("request to Stripe failed", reason=str(error))
            raise NotReady("the payment provider does not respond: try again later") from error
        return str(session.url)


class CheckoutService:
    def __init__(
        self, pool: DatabasePool, providers: PaymentProviders, clock: Callable[[], datetime]
    ) -> None:
        self._pool = pool
        self._providers = providers
        self._clock = clock

    @property
    def is_configured(self) -> bool:
        return self._providers.checkout is not None or self._providers.test is not None

    async def record(self, caller: Caller, action: str, entity: str, account: int | None) -> None:
        """Before a request to the provider: raises `TooManyRequests` beyond the daily limit."""
        async with self._pool.transaction() as connection:
            await AuditRepository(connection).record(caller, action, entity, account=account)

    async def begin(self, owner: SubscriptionOwner, plan: str, back: str) -> str:
        """The page on which the plan is bought. The test provider sells it at once."""
        audience = "user" if owner.user_id is not None else "account"
        plans = {each.code: each for each in await PlanService(self._pool, self._clock).plans()}
        found = plans.get(plan)
        if found is None or found.audience != audience or not found.price:
            raise invalid_field("plan", f"must be a paid plan for a {audience}, got {plan!r}")
        if self._providers.checkout is not None:
            return await self._providers.checkout.begin(owner, plan, back)
        if self._providers.test is None:
            raise NotConfigured("payments are not configured (PENSTOCK_HIVES_PAYMENTS_STRIPE_KEY)")
        cents = int(found.price * 100)
        bought = self._providers.test.webhook(owner, plan, SubscriptionStatus.ACTIVE, cents)
        await PaymentService(self._pool, self._clock).apply(self._providers.test.read(*bought))
        return back

    async def portal(self, owner: SubscriptionOwner, back: str) -> str:
        """The page on which the owner changes the payment method, cancels, and gets invoices."""
        if self._providers.checkout is None:
            raise NotConfigured("payments are not configured (PENSTOCK_HIVES_PAYMENTS_STRIPE_KEY)")
        row = await self._pool.row(_CUSTOMER, asdict(owner))
        if row is None:
            raise NotFound("there is no subscription with Stripe")
        return await self._providers.checkout.portal(row["customer"], back)
