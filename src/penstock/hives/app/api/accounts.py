"""Accounts and who belongs to them; plans, subscriptions and what was paid."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context, Served
from penstock.hives.app.api.etags import PUBLIC, IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, Line, Moment, Ref, Word, Zone, named
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.api.public import from_cache
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.people import Account, Invitation, Member, Membership
from penstock.hives.app.domain.plans import Plan, Subscription, Transaction
from penstock.hives.app.domain.roles import Permission, Role

router = APIRouter(route_class=IdempotentRoute, tags=["business"])

Self = Annotated[Caller, Depends(allowed(Permission.OWN_PROFILE))]
Opener = Annotated[Caller, Depends(allowed(Permission.OPEN_ACCOUNT))]
Insider = Annotated[Caller, Depends(allowed(Permission.READ_ACCOUNT))]
Editor = Annotated[Caller, Depends(allowed(Permission.EDIT_ACCOUNT))]
Host = Annotated[Caller, Depends(allowed(Permission.EDIT_MEMBERS))]
Payer = Annotated[Caller, Depends(allowed(Permission.READ_BILLING))]
Granter = Annotated[Caller, Depends(allowed(Permission.GRANT_PLANS))]


class NewAccount(Body):
    name: Line
    time_zone: Zone = "UTC"


class AccountEdit(Body):
    name: Line | None = None
    time_zone: Zone | None = None
    billing_contact_uid: Line | None = None


class MemberRole(Body):
    role: Literal["account_member", "account_admin"] = "account_member"


class Grant(Body):
    """A plan by hand, to a user or to an account."""

    plan: Word
    user_id: Ref | None = None
    account_id: Ref | None = None
    expires_at: Moment | None = None


@router.get("/accounts", response_model=Page[Account])
async def list_accounts(
    request: Request, caller: Self, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Those you belong to; all of them, for operators."""
    return tagged(request, await services.accounts.mine(caller, cursor, limit))


@router.post("/accounts", status_code=201)
async def open_account(
    body: NewAccount, caller: Opener, services: Served, response: Response
) -> Account:
    """A business of your own: you are its admin."""
    made = await services.accounts.open(caller, body.name, body.time_zone)
    response.headers["Location"] = f"/v1/accounts/{made.id}"
    return made


@router.get("/accounts/{account}", response_model=Account)
async def get_account(request: Request, account: Id, caller: Insider, services: Served) -> Response:
    return tagged(request, await services.accounts.get(caller, account))


@router.patch("/accounts/{account}", response_model=Account)
async def edit_account(
    request: Request,
    account: Id,
    body: AccountEdit,
    caller: Editor,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    return tagged(request, await services.accounts.edit(caller, account, named(body), seen))


@router.delete("/accounts/{account}", status_code=204)
async def close_account(account: Id, caller: Editor, services: Served) -> None:
    """Its hives are hidden with it."""
    await services.accounts.close(caller, account)


@router.get("/accounts/{account}/members")
async def list_members(account: Id, caller: Insider, services: Served) -> list[Member]:
    return await services.accounts.members(caller, account)


@router.put("/accounts/{account}/members/{user}")
async def appoint_member(
    account: Id, user: Id, body: MemberRole, caller: Host, services: Served
) -> Member:
    """A member gets another role. Others are invited."""
    return await services.accounts.appoint(caller, account, user, Role(body.role))


@router.delete("/accounts/{account}/members/{user}", status_code=204)
async def dismiss_member(account: Id, user: Id, caller: Insider, services: Served) -> None:
    """Admins may dismiss anybody but the last admin; members may go."""
    await services.accounts.dismiss(caller, account, user)


@router.get("/accounts/{account}/invitations")
async def list_invitations(account: Id, caller: Host, services: Served) -> list[Invitation]:
    """Who has been asked to join, and has not answered."""
    return await services.invitations.of_account(caller, account)


@router.put("/accounts/{account}/invitations/{user}")
async def invite(
    account: Id, user: Id, body: MemberRole, caller: Host, services: Served
) -> Invitation:
    """Ask somebody to join. They find it in their inbox, and are a member once they accept."""
    return await services.invitations.invite(caller, account, user, Role(body.role))


@router.delete("/accounts/{account}/invitations/{user}", status_code=204)
async def withdraw_invitation(account: Id, user: Id, caller: Host, services: Served) -> None:
    await services.invitations.withdraw(caller, account, user)


@router.get("/me/invitations")
async def my_invitations(caller: Self, services: Served) -> list[Invitation]:
    """Accounts that ask you to join."""
    return await services.invitations.mine(caller)


@router.post("/me/invitations/{account}/accept")
async def accept_invitation(account: Id, caller: Self, services: Served) -> Membership:
    """Join the account, in the role you were asked for."""
    return await services.invitations.accept(caller, account)


@router.delete("/me/invitations/{account}", status_code=204)
async def decline_invitation(account: Id, caller: Self, services: Served) -> None:
    await services.invitations.decline(caller, account)


@router.get("/plans", response_model=list[Plan], tags=["plans"])
async def list_plans(request: Request, caller: Reader, context: Context) -> Response:
    """What may be had, with the features of each."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.plans.plans(), PUBLIC)


@router.get("/me/subscriptions", tags=["plans"])
async def my_subscriptions(caller: Self, services: Served) -> list[Subscription]:
    return await services.plans.subscriptions(caller, None)


@router.get("/me/transactions", response_model=Page[Transaction], tags=["plans"])
async def my_transactions(
    request: Request, caller: Self, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """What you paid, with when it was cancelled and when it expires."""
    return tagged(request, await services.plans.transactions(caller, None, cursor, limit))


@router.get("/accounts/{account}/subscriptions", tags=["plans"])
async def account_subscriptions(account: Id, caller: Payer, services: Served) -> list[Subscription]:
    return await services.plans.subscriptions(caller, account)


@router.get("/accounts/{account}/transactions", response_model=Page[Transaction], tags=["plans"])
async def account_transactions(
    request: Request,
    account: Id,
    caller: Payer,
    services: Served,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    return tagged(request, await services.plans.transactions(caller, account, cursor, limit))


@router.post("/subscriptions", status_code=201, tags=["plans", "operators"])
async def grant_plan(body: Grant, caller: Granter, services: Served) -> Subscription:
    return await services.plans.grant(
        caller, body.plan, body.user_id, body.account_id, body.expires_at
    )


@router.post("/subscriptions/{subscription}/cancel", tags=["plans"])
async def cancel_subscription(subscription: Id, caller: Self, services: Served) -> Subscription:
    """It runs to the end of what was paid. What was bought in a store is cancelled there (409)."""
    return await services.plans.cancel(caller, subscription)
