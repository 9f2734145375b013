"""Notification settings of the caller, and the alerts that they are."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from penstock_hives.alerts.models import AlertKind, NotificationSetting, ThresholdUnit
from penstock_hives.alerts.service import AlertService, AlertStatus
from penstock_hives.api.dependencies import PlaceOwner, ResourcesDep, ServicesDep
from penstock_hives.api.fields import LocalTime, ObjectId, PathId, RequestBody, fields_set
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import IfMatch, etag_response

router = APIRouter(route_class=IdempotentRoute, tags=["alerts"])
settings_router = APIRouter(route_class=IdempotentRoute, tags=["notifications"])

Threshold = Annotated[float, Field(ge=0, le=1_000_000)]
Channels = Annotated[tuple[Literal["inbox", "push"], ...], Field(min_length=1, max_length=2)]
Weekdays = Annotated[
    tuple[Annotated[int, Field(ge=0, le=6)], ...], Field(max_length=7, examples=[[0, 1, 2]])
]
Cooldown = Annotated[int, Field(ge=0, le=604_800)]


def get_alert_service(context: ResourcesDep) -> AlertService:
    return AlertService(context.pool, context.clock)


AlertServiceDep = Annotated[AlertService, Depends(get_alert_service)]


class NewSetting(RequestBody):
    """An alert. Occupancy kinds need a hive, a threshold and a unit."""

    kind: AlertKind
    hive_id: ObjectId | None = None
    threshold: Threshold | None = None
    unit: ThresholdUnit | None = None
    hysteresis: Threshold = 0
    """How far the value must return before the alert can fire again."""
    cooldown_s: Cooldown = 1800
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    weekdays: Weekdays = ()
    """Days on which an occupancy alert fires, Monday is 0; none: any."""
    active_from: LocalTime | None = None
    """From when on an occupancy alert fires, by the clock of the hive."""
    active_to: LocalTime | None = None
    channels: Channels = ("inbox", "push")
    enabled: bool = True


class SettingEdit(RequestBody):
    kind: AlertKind | None = None
    hive_id: ObjectId | None = None
    threshold: Threshold | None = None
    unit: ThresholdUnit | None = None
    hysteresis: Threshold | None = None
    cooldown_s: Cooldown | None = None
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    weekdays: Weekdays | None = None
    active_from: LocalTime | None = None
    active_to: LocalTime | None = None
    channels: Channels | None = None
    enabled: bool | None = None


@router.get("/alerts")
async def list_alerts(caller: PlaceOwner, alerts: AlertServiceDep) -> list[AlertStatus]:
    """Each alert with its current subscriptions in the content language."""
    return await alerts.of_user(caller)


@router.post("/alerts/{alert}/test", status_code=204)
async def try_out(alert: PathId, caller: PlaceOwner, alerts: AlertServiceDep) -> None:
    """Send yourself a notification as the alert would."""
    await alerts.send_test(caller, alert)


@settings_router.get("/me/notification-settings")
async def list_settings(caller: PlaceOwner, services: ServicesDep) -> list[NotificationSetting]:
    """Your alerts."""
    return await services.notifications.of_user(caller)


@settings_router.post("/me/notification-settings", status_code=201)
async def add_setting(
    body: NewSetting, caller: PlaceOwner, services: ServicesDep, response: Response
) -> NotificationSetting:
    """Define an alert, within the limit of your plan."""
    made = await services.notifications.define(caller, body.model_dump())
    response.headers["Location"] = f"/v1/me/notification-settings/{made.id}"
    return made


@settings_router.get("/me/notification-settings/{setting}", response_model=NotificationSetting)
async def get_setting(
    request: Request, setting: PathId, caller: PlaceOwner, services: ServicesDep
) -> Response:
    """An alert."""
    return etag_response(request, await services.notifications.get(caller, setting))


@settings_router.patch("/me/notification-settings/{setting}", response_model=NotificationSetting)
async def edit_setting(
    request: Request,
    setting: PathId,
    body: SettingEdit,
    caller: PlaceOwner,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields of an alert."""
    made = await services.notifications.edit(caller, setting, fields_set(body), seen)
    return etag_response(request, made)


@settings_router.delete("/me/notification-settings/{setting}", status_code=204)
async def remove_setting(setting: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    """Remove an alert."""
    await services.notifications.remove(caller, setting)
