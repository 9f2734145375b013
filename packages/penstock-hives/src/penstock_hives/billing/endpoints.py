"""What providers of payments tell us, and what somebody may use because of it."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request

from penstock_hives.api.dependencies import Reader, ResourcesDep, require_permission
from penstock_hives.api.fields import Identifier, ObjectId, RequestBody
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.billing.models import (
    Entitlement,
    SubscriptionOwner,
    SubscriptionStatus,
    account_token,
)
from penstock_hives.billing.service import EventOutcome, PaymentService
from penstock_hives.billing.settings import PaymentProviders, PaymentSettings, open_providers
from penstock_hives.errors import FieldError, InvalidRequest, NotConfigured
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_store.http.problems import Problem

router = APIRouter(
    route_class=IdempotentRoute,
    tags=["payments"],
    responses={501: {"description": "This installation has no such part.", "model": Problem}},
)

Known = Annotated[Caller, Depends(require_permission(AppPermission.OWN_PROFILE))]
#: A webhook is checked over the bytes that came, so nothing is made of them before.
_RAW: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    403: {"description": "It is not the provider's, or an old one sent again.", "model": Problem}
}


class WebhookReceipt(RequestBody):
    outcome: EventOutcome
    """Applied; seen before, and then nothing changed; or kept until more is known."""


class Purchase(RequestBody):
    plan: Identifier
    account_id: ObjectId | None = None
    """The business it is for; oneself, if it is not said."""


class AccountToken(RequestBody):
    token: UUID
    """What an app passes to the App Store with a purchase (`appAccountToken`)."""


def get_providers(request: Request, context: ResourcesDep) -> PaymentProviders:
    """This installation's; opened once."""
    state = request.app.state
    if not hasattr(state, "payments"):
        state.payments = open_providers(PaymentSettings(), production=context.settings.production)
    found = state.payments
    assert isinstance(found, PaymentProviders)
    return found


def get_payments(context: ResourcesDep) -> PaymentService:
    return PaymentService(context.pool, context.clock)


ProvidersDep = Annotated[PaymentProviders, Depends(get_providers)]
PaymentsDep = Annotated[PaymentService, Depends(get_payments)]
Signature = Annotated[str | None, Header(max_length=1000)]


@router.post("/payments/stripe/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_stripe(
    request: Request,
    caller: Reader,
    providers: ProvidersDep,
    payments: PaymentsDep,
    stripe_signature: Signature = None,
) -> WebhookReceipt:
    """An event of Stripe's, with its signature."""
    if providers.stripe is None:
        raise NotConfigured("payments by Stripe are not set up here")
    event = providers.stripe.read(await request.body(), stripe_signature)
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/apple/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_apple(
    request: Request, caller: Reader, providers: ProvidersDep, payments: PaymentsDep
) -> WebhookReceipt:
    """An App Store server notification, version 2, which is signed in itself."""
    if providers.apple is None:
        raise NotConfigured("payments in the App Store are not set up here")
    event = providers.apple.read(await request.body())
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/test/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_test(
    request: Request,
    caller: Reader,
    providers: ProvidersDep,
    payments: PaymentsDep,
    test_signature: Signature = None,
) -> WebhookReceipt:
    """An event of the test provider's, which is not there in production."""
    if providers.test is None:
        raise NotConfigured("there is no test provider here")
    event = providers.test.read(await request.body(), test_signature)
    return WebhookReceipt(outcome=await payments.apply(event))


@router.post("/payments/test/purchase", status_code=201)
async def purchase(
    body: Purchase,
    caller: Known,
    context: ResourcesDep,
    providers: ProvidersDep,
    payments: PaymentsDep,
) -> Entitlement:
    """Have a plan for a month and pay nothing: for development."""
    if providers.test is None:
        raise NotConfigured("there is no test provider here")
    owner = _owner(caller, body.account_id)
    audience = "user" if owner.user_id is not None else "account"
    plans = {each.code: each for each in await context.services.plans.plans()}
    plan = plans.get(body.plan)
    if plan is None or plan.audience != audience:
        raise InvalidRequest(
            "no such plan", [FieldError("plan", f"{body.plan!r} is none for them")]
        )
    cents = int(plan.price * 100)
    bought = providers.test.webhook(owner, plan.code, SubscriptionStatus.ACTIVE, cents)
    await payments.apply(providers.test.read(*bought))
    return await payments.entitlement(owner)


@router.get("/payments/entitlement")
async def get_entitlement(
    caller: Known,
    payments: PaymentsDep,
    account_id: Annotated[ObjectId | None, Query(description="A business one works for.")] = None,
) -> Entitlement:
    """What one may use, merged from everyone one pays for it."""
    return await payments.entitlement(_owner(caller, account_id))


@router.get("/payments/apple/account-token")
async def get_account_token(caller: Known) -> AccountToken:
    return AccountToken(token=account_token(caller.known))


def _owner(caller: Caller, account: int | None) -> SubscriptionOwner:
    if account is None:
        return SubscriptionOwner(user_id=caller.known)
    caller.require(AppPermission.READ_BILLING, account)
    return SubscriptionOwner(account_id=account)
