"""Profile, API keys and activity of the caller; accounts and members; users, for operators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.analytics.models import Usage
from penstock_hives.api.dependencies import (
    AccountReader,
    Operator,
    Reader,
    ServicesDep,
    SignedIn,
    require_permission,
)
from penstock_hives.api.fields import (
    Locale,
    ObjectId,
    PathId,
    RequestBody,
    ShortText,
    Timestamp,
    TimeZoneName,
    fields_set,
)
from penstock_hives.api.idempotency import SECRET, IdempotentRoute
from penstock_hives.api.responses import Cursor, IfMatch, Limit, Page, Paging, etag_response
from penstock_hives.encoding import encode_json
from penstock_hives.people.models import (
    AccountMember,
    ApiKey,
    AuditEntry,
    BusinessAccount,
    Invitation,
    Membership,
    NewApiKey,
    UserProfile,
    UserSummary,
)
from penstock_hives.people.permissions import (
    ACCOUNT_SCOPED,
    GRANTS,
    AppPermission,
    Caller,
    UserRole,
)

router = APIRouter(route_class=IdempotentRoute, tags=["users"])

KeyOwner = Annotated[Caller, Depends(require_permission(AppPermission.OWN_KEYS))]
Recorder = Annotated[Caller, Depends(require_permission(AppPermission.RECORD_ACTIVITY))]
Analyst = Annotated[Caller, Depends(require_permission(AppPermission.READ_USAGE))]
Appointer = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_ROLES))]
Auditor = Annotated[Caller, Depends(require_permission(AppPermission.READ_AUDIT))]

Days = Annotated[int, Query(ge=1, le=366)]


class ProfileEdit(RequestBody):
    """Fields that are missing stay. Age band and gender are voluntary; null removes them."""

    nickname: Annotated[ShortText, Field(max_length=40)] | None = None
    locale: Locale | None = None
    time_zone: TimeZoneName | None = None
    age_band: Literal["under_18", "18_24", "25_34", "35_49", "50_64", "65_over"] | None = None
    gender: Literal["female", "male", "other"] | None = None


class NewKey(RequestBody):
    name: ShortText
    expires_at: Timestamp | None = None


class ActivityEvent(RequestBody):
    action: Literal[
        "view",
        "search",
        "favourite",
        "unfavourite",
        "deal_show",
        "deal_open",
        "deal_redeem",
        "navigate",
    ]
    """deal_show and deal_open are counted with the deal."""
    page_identifier: Annotated[str, Field(max_length=200, pattern=r"^[\w/.:-]*$")] = ""
    hive_id: ObjectId | None = None
    deal_id: ObjectId | None = None
    query: ShortText | None = None
    """The search text."""
    at: Timestamp | None = None


class ActivityEvents(RequestBody):
    session_id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w-]+$")]
    events: Annotated[list[ActivityEvent], Field(min_length=1, max_length=100)]


class RecordedEvents(RequestBody):
    recorded: int


class RoleAssignment(RequestBody):
    role: Literal["user", "operator", "admin"]


class RoleGrants(RequestBody):
    role: UserRole
    permissions: list[AppPermission]
    everywhere: bool
    """Whether permissions in accounts apply to all accounts."""


@router.get("/me", response_model=UserProfile)
async def get_me(request: Request, caller: SignedIn, services: ServicesDep) -> Response:
    """All data of your profile."""
    return etag_response(request, await services.users.profile(caller))


@router.patch("/me", response_model=UserProfile)
async def edit_me(
    request: Request,
    body: ProfileEdit,
    caller: SignedIn,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields of your profile."""
    return etag_response(request, await services.users.edit(caller, fields_set(body), seen))


@router.get("/me/export")
async def export_me(caller: SignedIn, services: ServicesDep) -> Response:
    """Everything that is stored about you, as a JSON file."""
    document = encode_json(await services.users.export(caller))
    headers = {
        "Content-Disposition": 'attachment; filename="hives-export.json"',
        "Cache-Control": "no-store",
    }
    return Response(document, media_type="application/json", headers=headers)


@router.delete("/me", status_code=204)
async def leave(caller: SignedIn, services: ServicesDep) -> None:
    """Delete your user with its messages, activity and settings."""
    await services.users.leave(caller)


@router.get("/me/activity", tags=["analytics"])
async def my_activity(
    caller: SignedIn, services: ServicesDep, days: Days = 90, limit: Limit = 10
) -> Usage:
    """What you viewed, searched and liked most."""
    return await services.activity.mine(caller, days, limit)


@router.post("/events", status_code=202, tags=["analytics"])
async def record_events(
    body: ActivityEvents, caller: Recorder, services: ServicesDep
) -> RecordedEvents:
    """Record activity in an app; without a sign-in it is anonymous."""
    events = [_event(body.session_id, each) for each in body.events]
    return RecordedEvents(recorded=await services.activity.record(caller, events))


@router.get("/me/keys", tags=["security"])
async def list_keys(caller: KeyOwner, services: ServicesDep) -> list[ApiKey]:
    """Your API keys, without their secrets."""
    return await services.keys.of_user(caller)


@router.post("/me/keys", status_code=201, tags=["security"], openapi_extra=SECRET)
async def make_key(body: NewKey, caller: KeyOwner, services: ServicesDep) -> NewApiKey:
    """An API key for a program that acts as you. The secret is shown only once."""
    return await services.keys.make(caller, body.name, body.expires_at)


@router.delete("/me/keys/{key}", status_code=204, tags=["security"])
async def revoke_key(key: PathId, caller: KeyOwner, services: ServicesDep) -> None:
    """Revoke an API key."""
    await services.keys.revoke(caller, key)


@router.get("/roles", tags=["security"])
async def list_roles(caller: Reader) -> list[RoleGrants]:
    """The permissions of each role."""
    return [
        RoleGrants(
            role=role,
            permissions=sorted(granted),
            everywhere=role in (UserRole.OPERATOR, UserRole.ADMIN) and granted >= ACCOUNT_SCOPED,
        )
        for role, granted in GRANTS.items()
    ]


@router.get("/users", response_model=Page[UserSummary], tags=["operators"])
async def list_users(
    request: Request, caller: Operator, services: ServicesDep, page: Paging
) -> Response:
    """List users; for operators."""
    return etag_response(request, await services.users.users(caller, page.cursor, page.limit))


@router.put("/users/{user}/role", status_code=204, tags=["operators", "security"])
async def appoint(
    user: PathId, body: RoleAssignment, caller: Appointer, services: ServicesDep
) -> None:
    """Set the role of a user; for operators."""
    await services.users.appoint(caller, user, UserRole(body.role))


@router.get("/usage", tags=["operators", "analytics"])
async def usage(
    caller: Analyst, services: ServicesDep, days: Days = 30, limit: Limit = 10
) -> Usage:
    """What all users view, search and like most."""
    return await services.activity.everybody(caller, days, limit)


@router.get("/audit", response_model=Page[AuditEntry], tags=["security"])
async def audit(
    request: Request,
    caller: Auditor,
    services: ServicesDep,
    account: Annotated[int | None, Query(ge=1, le=(1 << 63) - 1)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Changes with their authors, the newest first; operators may omit the account."""
    return etag_response(request, await services.users.audit(caller, account, cursor, limit))


def _event(session: str, event: ActivityEvent) -> dict[str, Any]:
    values = event.model_dump(exclude={"query"})
    data = {} if event.query is None else {"query": event.query}
    return {**values, "session_id": session, "data_json": data}


accounts_router = APIRouter(route_class=IdempotentRoute, tags=["business"])

Opener = Annotated[Caller, Depends(require_permission(AppPermission.OPEN_ACCOUNT))]
AccountEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_ACCOUNT))]
MemberEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_MEMBERS))]


class NewAccount(RequestBody):
    name: ShortText
    time_zone: TimeZoneName = "UTC"


class AccountEdit(RequestBody):
    name: ShortText | None = None
    time_zone: TimeZoneName | None = None
    billing_contact_uid: ShortText | None = None


class MemberRole(RequestBody):
    role: Literal["account_member", "account_admin"] = "account_member"


@accounts_router.get("/accounts", response_model=Page[BusinessAccount])
async def list_accounts(
    request: Request, caller: SignedIn, services: ServicesDep, page: Paging
) -> Response:
    """Your accounts; for operators all accounts."""
    return etag_response(request, await services.accounts.mine(caller, page.cursor, page.limit))


@accounts_router.post("/accounts", status_code=201)
async def open_account(
    body: NewAccount, caller: Opener, services: ServicesDep, response: Response
) -> BusinessAccount:
    """Open an account; you become its admin."""
    made = await services.accounts.open(caller, body.name, body.time_zone)
    response.headers["Location"] = f"/v1/accounts/{made.id}"
    return made


@accounts_router.get("/accounts/{account}", response_model=BusinessAccount)
async def get_account(
    request: Request, account: PathId, caller: AccountReader, services: ServicesDep
) -> Response:
    """An account."""
    return etag_response(request, await services.accounts.get(caller, account))


@accounts_router.patch("/accounts/{account}", response_model=BusinessAccount)
async def edit_account(
    request: Request,
    account: PathId,
    body: AccountEdit,
    caller: AccountEditor,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields of an account."""
    return etag_response(
        request, await services.accounts.edit(caller, account, fields_set(body), seen)
    )


@accounts_router.delete("/accounts/{account}", status_code=204)
async def close_account(account: PathId, caller: AccountEditor, services: ServicesDep) -> None:
    """Close the account and hide its hives."""
    await services.accounts.close(caller, account)


@accounts_router.get("/accounts/{account}/members")
async def list_members(
    account: PathId, caller: AccountReader, services: ServicesDep
) -> list[AccountMember]:
    """The members of an account with their roles."""
    return await services.accounts.members(caller, account)


@accounts_router.put("/accounts/{account}/members/{user}")
async def appoint_member(
    account: PathId, user: PathId, body: MemberRole, caller: MemberEditor, services: ServicesDep
) -> AccountMember:
    """Change the role of a member. Invite users who are not members."""
    return await services.accounts.appoint(caller, account, user, UserRole(body.role))


@accounts_router.delete("/accounts/{account}/members/{user}", status_code=204)
async def dismiss_member(
    account: PathId, user: PathId, caller: AccountReader, services: ServicesDep
) -> None:
    """Admins may remove anybody but the last admin; members may leave."""
    await services.accounts.dismiss(caller, account, user)


@accounts_router.get("/accounts/{account}/invitations")
async def list_invitations(
    account: PathId, caller: MemberEditor, services: ServicesDep
) -> list[Invitation]:
    """Open invitations."""
    return await services.invitations.of_account(caller, account)


@accounts_router.put("/accounts/{account}/invitations/{user}")
async def invite(
    account: PathId, user: PathId, body: MemberRole, caller: MemberEditor, services: ServicesDep
) -> Invitation:
    """Invite a user, who becomes a member by accepting. The invitation is sent to the inbox."""
    return await services.invitations.invite(caller, account, user, UserRole(body.role))


@accounts_router.delete("/accounts/{account}/invitations/{user}", status_code=204)
async def withdraw_invitation(
    account: PathId, user: PathId, caller: MemberEditor, services: ServicesDep
) -> None:
    """Withdraw an invitation that is open."""
    await services.invitations.withdraw(caller, account, user)


@accounts_router.get("/me/invitations")
async def my_invitations(caller: SignedIn, services: ServicesDep) -> list[Invitation]:
    """Your open invitations."""
    return await services.invitations.mine(caller)


@accounts_router.post("/me/invitations/{account}/accept")
async def accept_invitation(account: PathId, caller: SignedIn, services: ServicesDep) -> Membership:
    """Join the account in the invited role."""
    return await services.invitations.accept(caller, account)


@accounts_router.delete("/me/invitations/{account}", status_code=204)
async def decline_invitation(account: PathId, caller: SignedIn, services: ServicesDep) -> None:
    """Decline the invitation of an account."""
    await services.invitations.decline(caller, account)
