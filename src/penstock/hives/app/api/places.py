"""What one keeps of hives: favourites, recent hives, notification settings."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import allowed
from penstock.hives.app.api.context import Served
from penstock.hives.app.api.etags import IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, LocalTime, Ref, named
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Limit
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import HiveSummary
from penstock.hives.app.domain.notifications import Definition
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["users"])

Keeper = Annotated[Caller, Depends(allowed(Permission.OWN_PLACES))]

Kind = Literal["occupancy_above", "occupancy_below", "deal_new", "deal_expiring", "favourite_deal"]
Threshold = Annotated[float, Field(ge=0, le=1_000_000)]
Channels = Annotated[tuple[Literal["inbox", "push"], ...], Field(min_length=1, max_length=2)]
Cooldown = Annotated[int, Field(ge=0, le=604_800)]


class NewSetting(Body):
    """What to be told. Kinds of occupancy need a hive, a threshold and a unit."""

    kind: Kind
    hive_id: Ref | None = None
    threshold: Threshold | None = None
    unit: Literal["count", "percent"] | None = None
    hysteresis: Threshold = 0
    """How far it must fall back before it is told again."""
    cooldown_s: Cooldown = 1800
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    channels: Channels = ("inbox", "push")
    enabled: bool = True


class SettingEdit(Body):
    kind: Kind | None = None
    hive_id: Ref | None = None
    threshold: Threshold | None = None
    unit: Literal["count", "percent"] | None = None
    hysteresis: Threshold | None = None
    cooldown_s: Cooldown | None = None
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    channels: Channels | None = None
    enabled: bool | None = None


@router.get("/me/favourites")
async def list_favourites(caller: Keeper, services: Served) -> list[HiveSummary]:
    return await services.favourites.favourites(caller)


@router.put("/me/favourites/{hive}", status_code=204)
async def add_favourite(hive: Id, caller: Keeper, services: Served) -> None:
    await services.favourites.favour(caller, hive, on=True)


@router.delete("/me/favourites/{hive}", status_code=204)
async def remove_favourite(hive: Id, caller: Keeper, services: Served) -> None:
    await services.favourites.favour(caller, hive, on=False)


@router.get("/me/recent")
async def list_recent(caller: Keeper, services: Served, limit: Limit = 20) -> list[HiveSummary]:
    """Hives you looked at, the last one first."""
    return await services.favourites.recent(caller, limit)


@router.put("/me/recent/{hive}", status_code=204)
async def visit(hive: Id, caller: Keeper, services: Served) -> None:
    await services.favourites.visit(caller, hive)


@router.get("/me/notification-settings", tags=["notifications"])
async def list_settings(caller: Keeper, services: Served) -> list[Definition]:
    return await services.notifications.of(caller)


@router.post("/me/notification-settings", status_code=201, tags=["notifications"])
async def add_setting(
    body: NewSetting, caller: Keeper, services: Served, response: Response
) -> Definition:
    """A threshold of your own; as many as your plan includes."""
    made = await services.notifications.define(caller, body.model_dump())
    response.headers["Location"] = f"/v1/me/notification-settings/{made.id}"
    return made


@router.get(
    "/me/notification-settings/{setting}", response_model=Definition, tags=["notifications"]
)
async def get_setting(request: Request, setting: Id, caller: Keeper, services: Served) -> Response:
    return tagged(request, await services.notifications.get(caller, setting))


@router.patch(
    "/me/notification-settings/{setting}", response_model=Definition, tags=["notifications"]
)
async def edit_setting(
    request: Request,
    setting: Id,
    body: SettingEdit,
    caller: Keeper,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    made = await services.notifications.edit(caller, setting, named(body), seen)
    return tagged(request, made)


@router.delete("/me/notification-settings/{setting}", status_code=204, tags=["notifications"])
async def remove_setting(setting: Id, caller: Keeper, services: Served) -> None:
    await services.notifications.remove(caller, setting)
