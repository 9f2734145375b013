"""Hives for everybody (list, map, details, occupancy), for their business, and favourites."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.api.dependencies import (
    AccountReader,
    PlaceOwner,
    Reader,
    ServicesDep,
    require_permission,
)
from penstock_hives.api.fields import (
    Identifier,
    LocalTime,
    LongText,
    PathId,
    RequestBody,
    ShortText,
    Timestamp,
    TimeZoneName,
    fields_set,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import (
    PRIVATE,
    PUBLIC,
    IfMatch,
    Limit,
    Page,
    Paging,
    PublicRoute,
    etag_response,
)
from penstock_hives.occupancy.models import Forecast, HiveDay, Occupancy, TypicalWeek
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.models import (
    ForecastQuery,
    HiveChange,
    HiveDetail,
    HiveNetwork,
    HiveQuery,
    HiveSettings,
    HiveSummary,
    HiveType,
    ManualCount,
    MapQuery,
    Navigation,
    NavigationQuery,
    map_features,
)

public_router = APIRouter(route_class=PublicRoute, tags=["hives"])
settings_router = APIRouter(route_class=IdempotentRoute, tags=["business"])
favourites_router = APIRouter(route_class=IdempotentRoute, tags=["users"])

HiveEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_HIVES))]
Counter = Annotated[Caller, Depends(require_permission(AppPermission.COUNT_HEADS))]
SensorEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_SENSORS))]
SensorReader = Annotated[Caller, Depends(require_permission(AppPermission.READ_SENSORS))]
TypeEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_TYPES))]

Clock = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
#: By weekday, and by date for exceptions, which replace the weekday's.
OpeningDay = Annotated[
    str, Field(pattern=r"^(mon|tue|wed|thu|fri|sat|sun|[0-9]{4}-[0-9]{2}-[0-9]{2})$")
]
OpeningSpans = dict[OpeningDay, list[tuple[Clock, Clock]]]


class Feature(RequestBody):
    """A hive on a map (GeoJSON)."""

    type: Literal["Feature"] = "Feature"
    id: int
    geometry: dict[str, Any]
    properties: HiveSummary


class FeatureCollection(RequestBody):
    type: Literal["FeatureCollection"] = "FeatureCollection"
    features: list[Feature]


class AddressBody(RequestBody):
    """The country is its two-letter code."""

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
    opening_hours: OpeningSpans = Field(default_factory=dict)
    reset_time: LocalTime = time(4)
    public: bool = True
    badge: bool = False
    """Whether other pages may embed its occupancy."""
    address: AddressBody | None = None


class HiveEdit(RequestBody):
    """Fields that are missing stay as they are."""

    name: ShortText | None = None
    type: Identifier | None = None
    time_zone: TimeZoneName | None = None
    description: LongText | None = None
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: OpeningSpans | None = None
    reset_time: LocalTime | None = None
    public: bool | None = None
    badge: bool | None = None
    address: AddressBody | None = None


class NewType(RequestBody):
    code: Identifier
    name: ShortText


class HeadCount(RequestBody):
    counted: Annotated[int, Field(ge=0, le=1_000_000)]
    at: Timestamp | None = None
    """Now unless given."""


class NewNetwork(RequestBody):
    kind: Literal["wifi", "ethernet", "cellular"]
    ssid: Annotated[ShortText, Field(max_length=32)] | None = None
    secret_ref: ShortText | None = None
    """Where its password is stored; never the password."""
    notes: LongText = ""


@public_router.get("/hives", response_model=Page[HiveSummary])
async def list_hives(
    request: Request, caller: Reader, services: ServicesDep, query: Annotated[HiveQuery, Query()]
) -> Response:
    """Hives by name, type, ZIP code and distance, with their occupancy."""
    return etag_response(request, await services.hives.search(query), PUBLIC)


@public_router.get("/map", response_model=FeatureCollection)
async def map_of_hives(
    request: Request, caller: Reader, services: ServicesDep, query: Annotated[MapQuery, Query()]
) -> Response:
    """Hives within a box, west,south,east,north, as GeoJSON."""
    found = await services.hives.within(query.bbox, query.limit)
    return etag_response(request, map_features(found), PUBLIC)


@public_router.get("/hive-types", response_model=list[HiveType])
async def list_types(request: Request, caller: Reader, services: ServicesDep) -> Response:
    """Restaurant, store, bar and so on."""
    return etag_response(request, await services.hives.types(), PUBLIC)


@public_router.get("/hives/{hive}", response_model=HiveDetail)
async def get_hive(
    request: Request, hive: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """A hive with its images, deals and occupancy."""
    return etag_response(request, await services.hives.detail(hive), PUBLIC)


@public_router.get("/hives/{hive}/occupancy", response_model=Occupancy)
async def get_occupancy(
    request: Request, hive: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """The occupancy now, and the usual one. Stale data has `quality` stale and no level."""
    return etag_response(request, await services.occupancy.live(hive))


@public_router.get("/hives/{hive}/typical-week", response_model=TypicalWeek)
async def get_week(
    request: Request, hive: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """The usual occupancy by weekday and hour, in the hive's local time."""
    return etag_response(request, await services.occupancy.week(hive), PUBLIC)


@public_router.get("/hives/{hive}/forecast", response_model=Forecast)
async def get_forecast(
    request: Request,
    hive: PathId,
    caller: Reader,
    services: ServicesDep,
    query: Annotated[ForecastQuery, Query()],
) -> Response:
    """Expected entries by the hour, and the peak; days other than today need a plan."""
    found = await services.occupancy.forecast(hive, query.day, caller)
    return etag_response(request, found, PUBLIC if caller.id is None else PRIVATE)


@public_router.get("/hives/{hive}/today", response_model=HiveDay)
async def get_today(
    request: Request, hive: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """Entries counted today by the hour, in the hive's local time."""
    return etag_response(request, await services.occupancy.today(hive), PUBLIC)


@public_router.get("/hives/{hive}/navigation", response_model=Navigation)
async def get_navigation(
    request: Request,
    hive: PathId,
    caller: Reader,
    services: ServicesDep,
    query: Annotated[NavigationQuery, Query()],
) -> Response:
    """The address; with `from`, distance and bearing from there."""
    return etag_response(request, await services.hives.navigation(hive, query.start), PUBLIC)


@settings_router.get("/accounts/{account}/hives", response_model=Page[HiveSettings])
async def list_own_hives(
    request: Request, account: PathId, caller: AccountReader, services: ServicesDep, page: Paging
) -> Response:
    """All hives of a business, hidden and closed ones included."""
    return etag_response(
        request, await services.hives.of_account(caller, account, page.cursor, page.limit)
    )


@settings_router.post("/accounts/{account}/hives", status_code=201)
async def open_hive(
    account: PathId, body: NewHive, caller: HiveEditor, services: ServicesDep, response: Response
) -> HiveSettings:
    """Open a hive, within the limit of the plan."""
    made = await services.hives.open(caller, account, _change(body.model_dump()))
    response.headers["Location"] = f"/v1/hives/{made.id}/settings"
    return made


@settings_router.get("/hives/{hive}/settings", response_model=HiveSettings)
async def get_settings(
    request: Request, hive: PathId, caller: AccountReader, services: ServicesDep
) -> Response:
    """A hive as its business edits it; pass its ETag as If-Match."""
    return etag_response(request, await services.hives.settings(caller, hive))


@settings_router.patch("/hives/{hive}", response_model=HiveSettings)
async def edit_hive(
    request: Request,
    hive: PathId,
    body: HiveEdit,
    caller: HiveEditor,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields; a capacity of null removes it."""
    change = _change(fields_set(body))
    return etag_response(request, await services.hives.edit(caller, hive, change, seen))


@settings_router.delete("/hives/{hive}", status_code=204)
async def close_hive(hive: PathId, caller: HiveEditor, services: ServicesDep) -> None:
    """Hide and close the hive; its data stays."""
    await services.hives.close(caller, hive)


@settings_router.post("/hives/{hive}/counts", status_code=201)
async def count_heads(
    hive: PathId, body: HeadCount, caller: Counter, services: ServicesDep
) -> ManualCount:
    """A manual count, which replaces the computed occupancy from then on."""
    return await services.occupancy.count(caller, hive, body.counted, body.at)


@settings_router.get("/hives/{hive}/counts")
async def list_counts(
    hive: PathId, caller: Counter, services: ServicesDep, limit: Limit = 50
) -> list[ManualCount]:
    """The manual counts of a hive, the newest first."""
    return await services.occupancy.counts(caller, hive, limit)


@settings_router.get("/hives/{hive}/networks")
async def list_networks(
    hive: PathId, caller: SensorReader, services: ServicesDep
) -> list[HiveNetwork]:
    """The networks that devices of the hive use, without their secrets."""
    return await services.hives.networks(caller, hive)


@settings_router.post("/hives/{hive}/networks", status_code=201)
async def add_network(
    hive: PathId, body: NewNetwork, caller: SensorEditor, services: ServicesDep
) -> HiveNetwork:
    """Add a network that devices of the hive use."""
    return await services.hives.add_network(caller, hive, body.model_dump())


@settings_router.delete("/hives/{hive}/networks/{network}", status_code=204)
async def remove_network(
    hive: PathId, network: PathId, caller: SensorEditor, services: ServicesDep
) -> None:
    """Remove a network of the hive."""
    await services.hives.remove_network(caller, hive, network)


@settings_router.post("/hive-types", status_code=201, tags=["operators"])
async def add_type(body: NewType, caller: TypeEditor, services: ServicesDep) -> HiveType:
    """Add a type of hive; for operators."""
    return await services.hives.add_type(caller, body.code, body.name)


def _change(values: dict[str, Any]) -> HiveChange:
    return HiveChange(values, values.pop("address", None))


@favourites_router.get("/me/favourites")
async def list_favourites(caller: PlaceOwner, services: ServicesDep) -> list[HiveSummary]:
    """Your favourite hives, the newest first."""
    return await services.favourites.favourites(caller)


@favourites_router.put("/me/favourites/{hive}", status_code=204)
async def add_favourite(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    """Add a hive to your favourites."""
    await services.favourites.favour(caller, hive, on=True)


@favourites_router.delete("/me/favourites/{hive}", status_code=204)
async def remove_favourite(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    """Remove a hive from your favourites."""
    await services.favourites.favour(caller, hive, on=False)


@favourites_router.get("/me/recent")
async def list_recent(
    caller: PlaceOwner, services: ServicesDep, limit: Limit = 20
) -> list[HiveSummary]:
    """Hives you viewed, the last one first."""
    return await services.favourites.recent(caller, limit)


@favourites_router.put("/me/recent/{hive}", status_code=204)
async def visit(hive: PathId, caller: PlaceOwner, services: ServicesDep) -> None:
    """Record that you viewed a hive."""
    await services.favourites.visit(caller, hive)
