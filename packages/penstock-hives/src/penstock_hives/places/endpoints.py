"""Hives as everybody sees them: the list and the search, one hive, its figures, the map."""

from __future__ import annotations

from datetime import date, time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.alerts.models import NotificationSetting
from penstock_hives.api.dependencies import Reader, ResourcesDep, ServicesDep, require_permission
from penstock_hives.api.fields import (
    Identifier,
    LocalTime,
    LongText,
    ObjectId,
    PathId,
    RequestBody,
    ShortText,
    Timestamp,
    TimeZoneName,
    fields_set,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import (
    PUBLIC,
    Cursor,
    IfMatch,
    Limit,
    Page,
    etag_response,
    read_from_cache,
)
from penstock_hives.occupancy.models import Forecast, Occupancy, TypicalWeek
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.models import (
    BoundingBox,
    GeoPoint,
    HiveChange,
    HiveDetail,
    HiveNetwork,
    HiveQuery,
    HiveSettings,
    HiveSort,
    HiveSummary,
    HiveType,
    ManualCount,
    Navigation,
)

router = APIRouter(route_class=IdempotentRoute, tags=["hives"])

Text = Annotated[str | None, Query(min_length=1, max_length=100, pattern="^[^\\x00]*$")]
Near = Annotated[
    str | None, Query(max_length=60, description="Latitude, longitude.", examples=["52.52,13.405"])
]


class Feature(RequestBody):
    """A hive on a map (GeoJSON)."""

    type: Literal["Feature"] = "Feature"
    id: int
    geometry: dict[str, Any]
    properties: HiveSummary


class FeatureCollection(RequestBody):
    type: Literal["FeatureCollection"] = "FeatureCollection"
    features: list[Feature]


@router.get("/hives", response_model=Page[HiveSummary])
async def list_hives(
    request: Request,
    caller: Reader,
    context: ResourcesDep,
    name: Text = None,
    type: Annotated[Identifier | None, Query()] = None,  # noqa: A002 - the query's own name
    zip: Text = None,  # noqa: A002
    near: Near = None,
    within_km: Annotated[float | None, Query(gt=0, le=20_100)] = None,
    open_now: bool | None = None,
    sort: HiveSort | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Hives by name, type, ZIP code and distance, with how full they are now."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    point = None if near is None else GeoPoint.parse(near)
    order = sort or (HiveSort.NAME if point is None else HiveSort.DISTANCE)
    query = HiveQuery(name, type, zip, point, within_km, open_now, order, limit, cursor)
    return etag_response(request, await context.services.hives.search(query), PUBLIC)


@router.get("/map", response_model=FeatureCollection)
async def map_of_hives(
    request: Request,
    caller: Reader,
    context: ResourcesDep,
    bbox: Annotated[str, Query(max_length=100, examples=["13.0,52.3,13.8,52.7"])],
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
) -> Response:
    """Hives within a box, west,south,east,north, as GeoJSON."""
    box = BoundingBox.parse(bbox)
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.hives.search(HiveQuery(limit=limit), box)
    features = [
        {
            "type": "Feature",
            "id": hive.id,
            "geometry": {"type": "Point", "coordinates": [point.lon, point.lat]},
            "properties": hive,
        }
        for hive in found.items
        if hive.address is not None and (point := hive.address.point) is not None
    ]
    return etag_response(request, {"type": "FeatureCollection", "features": features}, PUBLIC)


@router.get("/hive-types", response_model=list[HiveType])
async def list_types(request: Request, caller: Reader, context: ResourcesDep) -> Response:
    """Restaurant, store, bar and so on."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.hives.types(), PUBLIC)


@router.get("/hives/{hive}", response_model=HiveDetail)
async def get_hive(
    request: Request, hive: PathId, caller: Reader, context: ResourcesDep
) -> Response:
    """A hive with its pictures, its deals and how full it is."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.hives.detail(hive), PUBLIC)


@router.get("/hives/{hive}/occupancy", response_model=Occupancy)
async def get_occupancy(
    request: Request, hive: PathId, caller: Reader, context: ResourcesDep
) -> Response:
    """How full it is, and whether that is usual. A stale figure says so and has no level."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.occupancy.live(hive))


@router.get("/hives/{hive}/typical-week", response_model=TypicalWeek)
async def get_week(
    request: Request, hive: PathId, caller: Reader, context: ResourcesDep
) -> Response:
    """What is usual, by weekday and hour of the hive's own clock."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.occupancy.week(hive), PUBLIC)


@router.get("/hives/{hive}/forecast", response_model=Forecast)
async def get_forecast(
    request: Request, hive: PathId, caller: Reader, context: ResourcesDep, day: date | None = None
) -> Response:
    """Entries expected, by the hour, and when it will be busiest; of today unless a day is
    named."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    return etag_response(request, await context.services.occupancy.forecast(hive, day), PUBLIC)


@router.get("/hives/{hive}/navigation", response_model=Navigation)
async def get_navigation(
    request: Request,
    hive: PathId,
    caller: Reader,
    context: ResourcesDep,
    start: Annotated[str | None, Query(alias="from", max_length=60)] = None,
) -> Response:
    """Where it is, and how far and in which direction from somewhere."""
    if (answer := await read_from_cache(context.public, caller, request)) is not None:
        return answer
    point = None if start is None else GeoPoint.parse(start, "from")
    return etag_response(request, await context.services.hives.navigation(hive, point), PUBLIC)


# Hives as their businesses run them: opened, edited, counted in by hand, closed.

settings_router = APIRouter(route_class=IdempotentRoute, tags=["business"])

Editor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_HIVES))]
Member = Annotated[Caller, Depends(require_permission(AppPermission.READ_ACCOUNT))]
Counter = Annotated[Caller, Depends(require_permission(AppPermission.COUNT_HEADS))]
Fitter = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_SENSORS))]
Watcher = Annotated[Caller, Depends(require_permission(AppPermission.READ_SENSORS))]
Typist = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_TYPES))]

Clock = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
WeeklyHours = dict[
    Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], list[tuple[Clock, Clock]]
]


class AddressBody(RequestBody):
    """Where it is; the country by its two letters."""

    street: Annotated[LongText, Field(max_length=200)] = ""
    city: Annotated[LongText, Field(max_length=100)] = ""
    zip: Annotated[LongText, Field(max_length=20)] = ""
    country: Annotated[str, Field(pattern="^([A-Z]{2})?$")] = ""
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None


class NewHive(RequestBody):
    name: ShortText
    type: Identifier
    time_zone: TimeZoneName
    description: LongText = ""
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: WeeklyHours = Field(default_factory=dict)
    reset_time: LocalTime = time(4)
    public: bool = True
    address: AddressBody | None = None


class HiveEdit(RequestBody):
    """What is to be different; the rest stays."""

    name: ShortText | None = None
    type: Identifier | None = None
    time_zone: TimeZoneName | None = None
    description: LongText | None = None
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: WeeklyHours | None = None
    reset_time: LocalTime | None = None
    public: bool | None = None
    address: AddressBody | None = None


class NewType(RequestBody):
    code: Identifier
    name: ShortText


class HeadCount(RequestBody):
    counted: Annotated[int, Field(ge=0, le=1_000_000)]
    at: Timestamp | None = None
    """When; now, if it is not said."""


class NewNetwork(RequestBody):
    kind: Literal["wifi", "ethernet", "cellular"]
    ssid: Annotated[ShortText, Field(max_length=32)] | None = None
    secret_ref: ShortText | None = None
    """Where its password is kept; never the password."""
    notes: LongText = ""


@settings_router.get("/accounts/{account}/hives", response_model=Page[HiveSettings])
async def list_own_hives(
    request: Request,
    account: PathId,
    caller: Member,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A business's hives, hidden and closed ones too."""
    return etag_response(request, await services.hives.of_account(caller, account, cursor, limit))


@settings_router.post("/accounts/{account}/hives", status_code=201)
async def open_hive(
    account: PathId, body: NewHive, caller: Editor, services: ServicesDep, response: Response
) -> HiveSettings:
    """A new hive, if the plan includes one more."""
    made = await services.hives.open(caller, account, _change(body.model_dump()))
    response.headers["Location"] = f"/v1/hives/{made.id}/settings"
    return made


@settings_router.get("/hives/{hive}/settings", response_model=HiveSettings)
async def get_settings(
    request: Request, hive: PathId, caller: Member, services: ServicesDep
) -> Response:
    """A hive as its business edits it; its ETag goes into If-Match."""
    return etag_response(request, await services.hives.settings(caller, hive))


@settings_router.patch("/hives/{hive}", response_model=HiveSettings)
async def edit_hive(
    request: Request,
    hive: PathId,
    body: HiveEdit,
    caller: Editor,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change what is named; a capacity of null is none."""
    change = _change(fields_set(body))
    return etag_response(request, await services.hives.edit(caller, hive, change, seen))


@settings_router.delete("/hives/{hive}", status_code=204)
async def close_hive(hive: PathId, caller: Editor, services: ServicesDep) -> None:
    """It is hidden and closed; what was counted stays."""
    await services.hives.close(caller, hive)


@settings_router.post("/hives/{hive}/counts", status_code=201)
async def count_heads(
    hive: PathId, body: HeadCount, caller: Counter, services: ServicesDep
) -> ManualCount:
    """Heads that somebody counted: the truth from then on."""
    return await services.occupancy.count(caller, hive, body.counted, body.at)


@settings_router.get("/hives/{hive}/counts")
async def list_counts(
    hive: PathId, caller: Counter, services: ServicesDep, limit: Limit = 50
) -> list[ManualCount]:
    return await services.occupancy.counts(caller, hive, limit)


@settings_router.get("/hives/{hive}/networks")
async def list_networks(hive: PathId, caller: Watcher, services: ServicesDep) -> list[HiveNetwork]:
    return await services.hives.networks(caller, hive)


@settings_router.post("/hives/{hive}/networks", status_code=201)
async def add_network(
    hive: PathId, body: NewNetwork, caller: Fitter, services: ServicesDep
) -> HiveNetwork:
    return await services.hives.add_network(caller, hive, body.model_dump())


@settings_router.delete("/hives/{hive}/networks/{network}", status_code=204)
async def remove_network(
    hive: PathId, network: PathId, caller: Fitter, services: ServicesDep
) -> None:
    await services.hives.remove_network(caller, hive, network)


@settings_router.post("/hive-types", status_code=201, tags=["operators"])
async def add_type(body: NewType, caller: Typist, services: ServicesDep) -> HiveType:
    return await services.hives.add_type(caller, body.code, body.name)


def _change(values: dict[str, Any]) -> HiveChange:
    """Parts of an address that are not named stay, as other fields do."""
    return HiveChange(values, values.pop("address", None))


# What one keeps of hives: favourites, recent hives, notification settings.

favourites_router = APIRouter(route_class=IdempotentRoute, tags=["users"])

PlaceOwner = Annotated[Caller, Depends(require_permission(AppPermission.OWN_PLACES))]

Kind = Literal["occupancy_above", "occupancy_below", "deal_new", "deal_expiring", "favourite_deal"]
Threshold = Annotated[float, Field(ge=0, le=1_000_000)]
Channels = Annotated[tuple[Literal["inbox", "push"], ...], Field(min_length=1, max_length=2)]
Cooldown = Annotated[int, Field(ge=0, le=604_800)]


class NewSetting(RequestBody):
    """What to be told. Kinds of occupancy need a hive, a threshold and a unit."""

    kind: Kind
    hive_id: ObjectId | None = None
    threshold: Threshold | None = None
    unit: Literal["count", "percent"] | None = None
    hysteresis: Threshold = 0
    """How far it must fall back before it is told again."""
    cooldown_s: Cooldown = 1800
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    channels: Channels = ("inbox", "push")
    enabled: bool = True


class SettingEdit(RequestBody):
    kind: Kind | None = None
    hive_id: ObjectId | None = None
    threshold: Threshold | None = None
    unit: Literal["count", "percent"] | None = None
    hysteresis: Threshold | None = None
    cooldown_s: Cooldown | None = None
    quiet_from: LocalTime | None = None
    quiet_to: LocalTime | None = None
    channels: Channels | None = None
    enabled: bool | None = None


@favourites_router.get("/me/favourites")
async def list_favourites(caller: PlaceOwner, services: ServicesDep) -> list[HiveSummary]:
    return await services.favourites.favourites(caller)


@favourites_router.put("/me/favourites/{hive}", status_code=204)
async def add_favourite(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    await services.favourites.favour(caller, hive, on=True)


@favourites_router.delete("/me/favourites/{hive}", status_code=204)
async def remove_favourite(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    await services.favourites.favour(caller, hive, on=False)


@favourites_router.get("/me/recent")
async def list_recent(
    caller: PlaceOwner, services: ServicesDep, limit: Limit = 20
) -> list[HiveSummary]:
    """Hives you looked at, the last one first."""
    return await services.favourites.recent(caller, limit)


@favourites_router.put("/me/recent/{hive}", status_code=204)
async def visit(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    await services.favourites.visit(caller, hive)


@favourites_router.get("/me/notification-settings", tags=["notifications"])
async def list_settings(caller: PlaceOwner, services: ServicesDep) -> list[NotificationSetting]:
    return await services.notifications.of(caller)


@favourites_router.post("/me/notification-settings", status_code=201, tags=["notifications"])
async def add_setting(
    body: NewSetting, caller: PlaceOwner, services: ServicesDep, response: Response
) -> NotificationSetting:
    """A threshold of your own; as many as your plan includes."""
    made = await services.notifications.define(caller, body.model_dump())
    response.headers["Location"] = f"/v1/me/notification-settings/{made.id}"
    return made


@favourites_router.get(
    "/me/notification-settings/{setting}",
    response_model=NotificationSetting,
    tags=["notifications"],
)
async def get_setting(
    request: Request, setting: PathId, caller: PlaceOwner, services: ServicesDep
) -> Response:
    return etag_response(request, await services.notifications.get(caller, setting))


@favourites_router.patch(
    "/me/notification-settings/{setting}",
    response_model=NotificationSetting,
    tags=["notifications"],
)
async def edit_setting(
    request: Request,
    setting: PathId,
    body: SettingEdit,
    caller: PlaceOwner,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    made = await services.notifications.edit(caller, setting, fields_set(body), seen)
    return etag_response(request, made)


@favourites_router.delete(
    "/me/notification-settings/{setting}", status_code=204, tags=["notifications"]
)
async def remove_setting(setting: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    await services.notifications.remove(caller, setting)
