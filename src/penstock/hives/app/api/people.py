"""Oneself, one's keys and activity; for operators, everybody."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Served
from penstock.hives.app.api.etags import IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, Line, Locale, Moment, Ref, Zone, named
from penstock.hives.app.api.idempotency import SECRET, IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.domain.analytics import Usage
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.people import ApiKey, AuditEntry, NewApiKey, Profile, User
from penstock.hives.app.domain.roles import ACCOUNT_SCOPED, GRANTS, Permission, Role

router = APIRouter(route_class=IdempotentRoute, tags=["users"])

Self = Annotated[Caller, Depends(allowed(Permission.OWN_PROFILE))]
Keeper = Annotated[Caller, Depends(allowed(Permission.OWN_KEYS))]
Recorder = Annotated[Caller, Depends(allowed(Permission.RECORD_ACTIVITY))]
Operator = Annotated[Caller, Depends(allowed(Permission.READ_USERS))]
Analyst = Annotated[Caller, Depends(allowed(Permission.READ_USAGE))]
Appointer = Annotated[Caller, Depends(allowed(Permission.EDIT_ROLES))]
Auditor = Annotated[Caller, Depends(allowed(Permission.READ_AUDIT))]

Days = Annotated[int, Query(ge=1, le=366)]


class ProfileEdit(Body):
    """What is to be different. Age band and gender are told by choice; null takes them back."""

    nickname: Annotated[Line, Field(max_length=40)] | None = None
    locale: Locale | None = None
    time_zone: Zone | None = None
    age_band: Literal["under_18", "18_24", "25_34", "35_49", "50_64", "65_over"] | None = None
    gender: Literal["female", "male", "other"] | None = None


class NewKey(Body):
    name: Line
    expires_at: Moment | None = None


class Event(Body):
    """Something done in an application."""

    action: Literal[
        "view", "search", "favourite", "unfavourite", "deal_open", "deal_redeem", "navigate"
    ]
    page_identifier: Annotated[str, Field(max_length=200, pattern=r"^[\w/.:-]*$")] = ""
    hive_id: Ref | None = None
    deal_id: Ref | None = None
    query: Line | None = None
    """What was looked for."""
    at: Moment | None = None


class Events(Body):
    session_id: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w-]+$")]
    events: Annotated[list[Event], Field(min_length=1, max_length=100)]


class Recorded(Body):
    recorded: int


class Appointment(Body):
    role: Literal["user", "operator", "admin"]


class RoleGrants(Body):
    role: Role
    permissions: list[Permission]
    everywhere: bool
    """Whether permissions of accounts hold in all of them."""


@router.get("/me", response_model=Profile)
async def get_me(request: Request, caller: Self, services: Served) -> Response:
    """What we know of you: this is all of it."""
    return tagged(request, await services.users.profile(caller))


@router.patch("/me", response_model=Profile)
async def edit_me(
    request: Request, body: ProfileEdit, caller: Self, services: Served, seen: IfMatch = None
) -> Response:
    return tagged(request, await services.users.edit(caller, named(body), seen))


@router.delete("/me", status_code=204)
async def leave(caller: Self, services: Served) -> None:
    """Erases your messages, your activity and everything you kept."""
    await services.users.leave(caller)


@router.get("/me/activity", tags=["analytics"])
async def my_activity(caller: Self, services: Served, days: Days = 90, limit: Limit = 10) -> Usage:
    """What you looked at, looked for and liked most."""
    return await services.activity.mine(caller, days, limit)


@router.post("/events", status_code=202, tags=["analytics"])
async def record_events(body: Events, caller: Recorder, services: Served) -> Recorded:
    """What was done in an application; without signing in, it is nobody's."""
    events = [_event(body.session_id, each) for each in body.events]
    return Recorded(recorded=await services.activity.record(caller, events))


@router.get("/me/keys", tags=["security"])
async def list_keys(caller: Keeper, services: Served) -> list[ApiKey]:
    return await services.keys.of(caller)


@router.post("/me/keys", status_code=201, tags=["security"], openapi_extra=SECRET)
async def make_key(body: NewKey, caller: Keeper, services: Served) -> NewApiKey:
    """A key for a program, which then acts as you. The secret is shown this once."""
    return await services.keys.make(caller, body.name, body.expires_at)


@router.delete("/me/keys/{key}", status_code=204, tags=["security"])
async def revoke_key(key: Id, caller: Keeper, services: Served) -> None:
    await services.keys.revoke(caller, key)


@router.get("/roles", tags=["security"])
async def list_roles(caller: Reader) -> list[RoleGrants]:
    """Who may do what."""
    return [
        RoleGrants(
            role=role,
            permissions=sorted(granted),
            everywhere=role in (Role.OPERATOR, Role.ADMIN) and granted >= ACCOUNT_SCOPED,
        )
        for role, granted in GRANTS.items()
    ]


@router.get("/users", response_model=Page[User], tags=["operators"])
async def list_users(
    request: Request, caller: Operator, services: Served, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    return tagged(request, await services.users.users(caller, cursor, limit))


@router.put("/users/{user}/role", status_code=204, tags=["operators", "security"])
async def appoint(user: Id, body: Appointment, caller: Appointer, services: Served) -> None:
    await services.users.appoint(caller, user, Role(body.role))


@router.get("/usage", tags=["operators", "analytics"])
async def usage(caller: Analyst, services: Served, days: Days = 30, limit: Limit = 10) -> Usage:
    """What everybody looks at, looks for and likes most."""
    return await services.activity.everybody(caller, days, limit)


@router.get("/audit", response_model=Page[AuditEntry], tags=["security"])
async def audit(
    request: Request,
    caller: Auditor,
    services: Served,
    account: Annotated[int | None, Query(ge=1, le=(1 << 63) - 1)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Who changed what, the newest first; operators may leave out the account."""
    return tagged(request, await services.users.audit(caller, account, cursor, limit))


def _event(session: str, event: Event) -> dict[str, Any]:
    values = event.model_dump(exclude={"query"})
    data = {} if event.query is None else {"query": event.query}
    return {**values, "session_id": session, "data_json": data}
