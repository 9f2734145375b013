"""Plans, subscriptions and payments; webhooks of payment providers; entitlements."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import HttpUrl

from penstock_hives.api.dependencies import (
    Reader,
    ResourcesDep,
    ServicesDep,
    SignedIn,
    require_permission,
)
from penstock_hives.api.fields import Identifier, ObjectId, PathId, RequestBody, Timestamp
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import (
    PUBLIC,
    Page,
    Paging,
    PublicRoute,
    etag_response,
)
from penstock_hives.billing.checkout import CheckoutService
from penstock_hives.billing.models import (
    Entitlement,
    PaymentTransaction,
    PlanSubscription,
    SubscriptionOwner,
    SubscriptionPlan,
    SubscriptionStatus,
    account_token,
)
from penstock_hives.billing.service import EventOutcome, PaymentService
from penstock_hives.billing.settings import PaymentProviders, PaymentSettings, open_providers
from penstock_hives.errors import NotConfigured, invalid_field
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.settings import read_settings
from penstock_store.http.problems import Problem

router = APIRouter(
    route_class=IdempotentRoute,
    tags=["payments"],
    responses={501: {"description": "Not configured in this installation.", "model": Problem}},
)
plans_router = APIRouter(route_class=IdempotentRoute, tags=["plans"])
public_router = APIRouter(route_class=PublicRoute, tags=["plans"])

BillingReader = Annotated[Caller, Depends(require_permission(AppPermission.READ_BILLING))]
PlanGranter = Annotated[Caller, Depends(require_permission(AppPermission.GRANT_PLANS))]
#: Signatures cover the raw bytes, so FastAPI does not parse the body.
_RAW: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    403: {"description": "The signature is wrong or too old.", "model": Problem}
}


class WebhookReceipt(RequestBody):
    outcome: EventOutcome
    """`seen`: a repetition, ignored; `waiting`: stored until more is known."""


class Purchase(RequestBody):
    plan: Identifier
    account_id: ObjectId | None = None
    """The business that it is for; yourself unless given."""


class PortalBody(RequestBody):
    return_url: HttpUrl
    """The page to which the provider sends the user back."""
    account_id: ObjectId | None = None
    """The business that it is for; yourself unless given."""


class CheckoutBody(PortalBody):
    plan: Identifier


class ProviderPage(RequestBody):
    url: str


class AccountToken(RequestBody):
    token: UUID
    """The `appAccountToken` that an app passes to the App Store with a purchase."""


class PlanGrant(RequestBody):
    """A plan for a user or an account, granted by an operator."""

    plan: Identifier
    user_id: ObjectId | None = None
    account_id: ObjectId | None = None
    expires_at: Timestamp | None = None


def get_providers(request: Request, context: ResourcesDep) -> PaymentProviders:
    state = request.app.state
    if not hasattr(state, "payments"):
        settings = read_settings(PaymentSettings)
        state.payments = open_providers(settings, production=context.settings.production)
    found = state.payments
    assert isinstance(found, PaymentProviders)
    return found


def get_payments(context: ResourcesDep) -> PaymentService:
    return PaymentService(context.pool, context.clock)


ProvidersDep = Annotated[PaymentProviders, Depends(get_providers)]
PaymentsDep = Annotated[PaymentService, Depends(get_payments)]
Signature = Annotated[str | None, Header(max_length=1000)]


@public_router.get("/plans", response_model=list[SubscriptionPlan])
async def list_plans(request: Request, caller: Reader, services: ServicesDep) -> Response:
    """The plans with their features."""
    return etag_response(request, await services.plans.plans(), PUBLIC)


@plans_router.get("/me/subscriptions")
async def my_subscriptions(caller: SignedIn, services: ServicesDep) -> list[PlanSubscription]:
    """Your subscriptions to plans."""
    return await services.plans.subscriptions(caller, None)


@plans_router.get("/me/transactions", response_model=Page[PaymentTransaction])
async def my_transactions(
    request: Request, caller: SignedIn, services: ServicesDep, page: Paging
) -> Response:
    """Your payments, with cancellation and expiry of the subscriptions."""
    return etag_response(
        request, await services.plans.transactions(caller, None, page.cursor, page.limit)
    )


@plans_router.get("/accounts/{account}/subscriptions")
async def account_subscriptions(
    account: PathId, caller: BillingReader, services: ServicesDep
) -> list[PlanSubscription]:
    """The subscriptions of an account to plans."""
    return await services.plans.subscriptions(caller, account)


@plans_router.get("/accounts/{account}/transactions", response_model=Page[PaymentTransaction])
async def account_transactions(
    request: Request, account: PathId, caller: BillingReader, services: ServicesDep, page: Paging
) -> Response:
    """The payments of an account."""
    return etag_response(
        request, await services.plans.transactions(caller, account, page.cursor, page.limit)
    )


@plans_router.post("/subscriptions", status_code=201, tags=["operators"])
async def grant_plan(
    body: PlanGrant, caller: PlanGranter, services: ServicesDep
) -> PlanSubscription:
    """Grant a plan without payment; for operators."""
    return await services.plans.grant(
        caller, body.plan, body.user_id, body.account_id, body.expires_at
    )


@plans_router.post("/subscriptions/{subscription}/cancel")
async def cancel_subscription(
    subscription: PathId, caller: SignedIn, services: ServicesDep
) -> PlanSubscription:
    """Ends after the paid period. Subscriptions of a store are cancelled there (409)."""
    return await services.plans.cancel(caller, subscription)


@router.post("/payments/stripe/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_stripe(
    request: Request,
    caller: Reader,
    providers: ProvidersDep,
    payments: PaymentsDep,
    stripe_signature: Signature = None,
) -> WebhookReceipt:
    """A signed event of Stripe."""
    if providers.stripe is None:
        raise NotConfigured("Stripe is not configured (PENSTOCK_HIVES_PAYMENTS_STRIPE_SECRETS)")
    event = providers.stripe.read(await request.body(), stripe_signature)
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/apple/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_apple(
    request: Request, caller: Reader, providers: ProvidersDep, payments: PaymentsDep
) -> WebhookReceipt:
    """A signed App Store server notification, version 2."""
    if providers.apple is None:
        raise NotConfigured(
            "the App Store is not configured (PENSTOCK_HIVES_PAYMENTS_APPLE_BUNDLE)"
        )
    event = providers.apple.read(await request.body())
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/google/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_google(
    request: Request,
    caller: Reader,
    providers: ProvidersDep,
    payments: PaymentsDep,
) -> WebhookReceipt:
    """A real-time developer notification of Google Play, pushed and signed by Pub/Sub."""
    if providers.google is None:
        raise NotConfigured(
            "Google Play is not configured (PENSTOCK_HIVES_PAYMENTS_GOOGLE_PACKAGE)"
        )
    event = await providers.google.read(await request.body(), request.headers.get("authorization"))
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/checkout", status_code=201)
async def begin_checkout(
    body: CheckoutBody, caller: SignedIn, context: ResourcesDep, providers: ProvidersDep
) -> ProviderPage:
    """The page of the provider on which the plan is bought; webhooks apply the purchase."""
    owner = _owner(caller, body.account_id)
    checkout = CheckoutService(context.pool, providers, context.clock)
    await checkout.record(caller, "begin", "checkout", body.account_id)
    return ProviderPage(url=await checkout.begin(owner, body.plan, str(body.return_url)))


@router.post("/payments/portal", status_code=201)
async def open_portal(
    body: PortalBody, caller: SignedIn, context: ResourcesDep, providers: ProvidersDep
) -> ProviderPage:
    """The page of the provider with payment methods, invoices and cancellation."""
    owner = _owner(caller, body.account_id)
    checkout = CheckoutService(context.pool, providers, context.clock)
    await checkout.record(caller, "open", "billing_portal", body.account_id)
    return ProviderPage(url=await checkout.portal(owner, str(body.return_url)))


@router.post("/payments/test/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_test(
    request: Request,
    caller: Reader,
    providers: ProvidersDep,
    payments: PaymentsDep,
    test_signature: Signature = None,
) -> WebhookReceipt:
    """An event of the test provider, which does not exist in production."""
    if providers.test is None:
        raise NotConfigured("the test provider is not enabled")
    event = providers.test.read(await request.body(), test_signature)
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/test/purchase", status_code=201)
async def purchase(
    body: Purchase,
    caller: SignedIn,
    context: ResourcesDep,
    providers: ProvidersDep,
    payments: PaymentsDep,
) -> Entitlement:
    """A plan for a month without payment, for development."""
    if providers.test is None:
        raise NotConfigured("the test provider is not enabled")
    owner = _owner(caller, body.account_id)
    audience = "user" if owner.user_id is not None else "account"
    plans = {each.code: each for each in await context.services.plans.plans()}
    plan = plans.get(body.plan)
    if plan is None or plan.audience != audience:
        raise invalid_field("plan", f"must be a plan for a {audience}, got {body.plan!r}")
    cents = int(plan.price * 100)
    bought = providers.test.webhook(owner, plan.code, SubscriptionStatus.ACTIVE, cents)
    await payments.apply(providers.test.read(*bought))
    return await payments.entitlement(owner)


@router.get("/payments/entitlement")
async def get_entitlement(
    caller: SignedIn,
    payments: PaymentsDep,
    account_id: Annotated[ObjectId | None, Query(description="One of your accounts.")] = None,
) -> Entitlement:
    """Plan and features, merged from the subscriptions with all providers."""
    return await payments.entitlement(_owner(caller, account_id))


@router.get("/payments/apple/account-token")
async def get_account_token(caller: SignedIn) -> AccountToken:
    """The token that connects a purchase in the App Store with your user."""
    return AccountToken(token=account_token(caller.known))


def _owner(caller: Caller, account: int | None) -> SubscriptionOwner:
    if account is None:
        return SubscriptionOwner(user_id=caller.known)
    caller.require(AppPermission.READ_BILLING, account)
    return SubscriptionOwner(account_id=account)
