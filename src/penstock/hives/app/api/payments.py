"""What providers of payments tell us, and what somebody may use because of it."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context
from penstock.hives.app.api.fields import Body, Ref, Word
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.problems import Problem
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Fault, Invalid, NotConfigured
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.payments.account_tokens import account_token
from penstock.hives.app.payments.entitlement import Entitlement
from penstock.hives.app.payments.events import Owner, Status
from penstock.hives.app.payments.payments import Applied, Payments
from penstock.hives.app.payments.settings import PaymentSettings, Providers, open_providers

router = APIRouter(
    route_class=IdempotentRoute,
    tags=["payments"],
    responses={501: {"description": "This installation has no such part.", "model": Problem}},
)

Known = Annotated[Caller, Depends(allowed(Permission.OWN_PROFILE))]
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


class Received(Body):
    outcome: Applied
    """Applied; seen before, and then nothing changed; or kept until more is known."""


class Purchase(Body):
    plan: Word
    account_id: Ref | None = None
    """The business it is for; oneself, if it is not said."""


class AccountToken(Body):
    token: UUID
    """What an app passes to the App Store with a purchase (`appAccountToken`)."""


def providers(request: Request, context: Context) -> Providers:
    """This installation's; opened once."""
    state = request.app.state
    if not hasattr(state, "payments"):
        state.payments = open_providers(PaymentSettings(), production=context.settings.production)
    found = state.payments
    assert isinstance(found, Providers)
    return found


def books(context: Context) -> Payments:
    return Payments(context.pool, context.clock)


From = Annotated[Providers, Depends(providers)]
Books = Annotated[Payments, Depends(books)]
Signature = Annotated[str | None, Header(max_length=1000)]


@router.post("/payments/stripe/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_stripe(
    request: Request,
    caller: Reader,
    providers: From,
    payments: Books,
    stripe_signature: Signature = None,
) -> Received:
    """An event of Stripe's, with its signature."""
    if providers.stripe is None:
        raise NotConfigured("payments by Stripe are not set up here")
    event = providers.stripe.read(await request.body(), stripe_signature)
    return Received(outcome=await payments.apply(event))


@router.post("/payments/apple/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_apple(
    request: Request, caller: Reader, providers: From, payments: Books
) -> Received:
    """An App Store server notification, version 2, which is signed in itself."""
    if providers.apple is None:
        raise NotConfigured("payments in the App Store are not set up here")
    event = providers.apple.read(await request.body())
    return Received(outcome=await payments.apply(event))


@router.post("/payments/test/webhook", openapi_extra=_RAW, responses=_REFUSED)
async def from_test(
    request: Request,
    caller: Reader,
    providers: From,
    payments: Books,
    test_signature: Signature = None,
) -> Received:
    """An event of the test provider's, which is not there in production."""
    if providers.test is None:
        raise NotConfigured("there is no test provider here")
    event = providers.test.read(await request.body(), test_signature)
    return Received(outcome=await payments.apply(event))


@router.post("/payments/test/purchase", status_code=201)
async def purchase(
    body: Purchase, caller: Known, context: Context, providers: From, payments: Books
) -> Entitlement:
    """Have a plan for a month and pay nothing: for development."""
    if providers.test is None:
        raise NotConfigured("there is no test provider here")
    owner = _owner(caller, body.account_id)
    audience = "user" if owner.user_id is not None else "account"
    plans = {each.code: each for each in await context.services.plans.plans()}
    plan = plans.get(body.plan)
    if plan is None or plan.audience != audience:
        raise Invalid("no such plan", [Fault("plan", f"{body.plan!r} is none for them")])
    cents = int(plan.price * 100)
    bought = providers.test.webhook(owner, plan.code, Status.ACTIVE, cents)
    await payments.apply(providers.test.read(*bought))
    return await payments.entitlement(owner)


@router.get("/payments/entitlement")
async def get_entitlement(
    caller: Known,
    payments: Books,
    account_id: Annotated[Ref | None, Query(description="A business one works for.")] = None,
) -> Entitlement:
    """What one may use, merged from everyone one pays for it."""
    return await payments.entitlement(_owner(caller, account_id))


@router.get("/payments/apple/account-token")
async def get_account_token(caller: Known) -> AccountToken:
    return AccountToken(token=account_token(caller.known))


def _owner(caller: Caller, account: int | None) -> Owner:
    if account is None:
        return Owner(user_id=caller.known)
    caller.require(Permission.READ_BILLING, account)
    return Owner(account_id=account)
