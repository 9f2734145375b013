"""Hives: the list and the search, one hive, its figures, the map; and how businesses edit them."""

from __future__ import annotations

from datetime import date, time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context, Served
from penstock.hives.app.api.etags import PUBLIC, IfMatch, tagged
from penstock.hives.app.api.fields import Body, Id, Line, Moment, Note, Word, Zone, named
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.api.public import from_cache
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.geography import Box, Point
from penstock.hives.app.domain.hives import (
    HiveChange,
    HiveDetail,
    HiveQuery,
    HiveSettings,
    HiveSummary,
    HiveType,
    ManualCount,
    Navigation,
    Network,
    Sort,
)
from penstock.hives.app.domain.occupancy import Forecast, Occupancy, TypicalWeek
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["hives"])

Editor = Annotated[Caller, Depends(allowed(Permission.EDIT_HIVES))]
Member = Annotated[Caller, Depends(allowed(Permission.READ_ACCOUNT))]
Counter = Annotated[Caller, Depends(allowed(Permission.COUNT_HEADS))]
Fitter = Annotated[Caller, Depends(allowed(Permission.EDIT_SENSORS))]
Watcher = Annotated[Caller, Depends(allowed(Permission.READ_SENSORS))]
Typist = Annotated[Caller, Depends(allowed(Permission.EDIT_TYPES))]

Text = Annotated[str | None, Query(min_length=1, max_length=100, pattern="^[^\\x00]*$")]
Near = Annotated[
    str | None, Query(max_length=60, description="Latitude, longitude.", examples=["52.52,13.405"])
]
Clock = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
Hours = dict[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], list[tuple[Clock, Clock]]]


class AddressBody(Body):
    """Where it is; the country by its two letters."""

    street: Annotated[Note, Field(max_length=200)] = ""
    city: Annotated[Note, Field(max_length=100)] = ""
    zip: Annotated[Note, Field(max_length=20)] = ""
    country: Annotated[str, Field(pattern="^([A-Z]{2})?$")] = ""
    lat: Annotated[float, Field(ge=-90, le=90)] | None = None
    lon: Annotated[float, Field(ge=-180, le=180)] | None = None


class NewHive(Body):
    name: Line
    type: Word
    time_zone: Zone
    description: Note = ""
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: Hours = Field(default_factory=dict)
    reset_time: time = time(4)
    public: bool = True
    address: AddressBody | None = None


class HiveEdit(Body):
    """What is to be different; the rest stays."""

    name: Line | None = None
    type: Word | None = None
    time_zone: Zone | None = None
    description: Note | None = None
    capacity: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    opening_hours: Hours | None = None
    reset_time: time | None = None
    public: bool | None = None
    address: AddressBody | None = None


class NewType(Body):
    code: Word
    name: Line


class HeadCount(Body):
    counted: Annotated[int, Field(ge=0, le=1_000_000)]
    at: Moment | None = None
    """When; now, if it is not said."""


class NewNetwork(Body):
    kind: Literal["wifi", "ethernet", "cellular"]
    ssid: Annotated[Line, Field(max_length=32)] | None = None
    secret_ref: Line | None = None
    """Where its password is kept; never the password."""
    notes: Note = ""


class Feature(Body):
    """A hive on a map (GeoJSON)."""

    type: Literal["Feature"] = "Feature"
    id: int
    geometry: dict[str, Any]
    properties: HiveSummary


class Map(Body):
    type: Literal["FeatureCollection"] = "FeatureCollection"
    features: list[Feature]


@router.get("/hives", response_model=Page[HiveSummary])
async def list_hives(
    request: Request,
    caller: Reader,
    context: Context,
    name: Text = None,
    type: Annotated[Word | None, Query()] = None,  # noqa: A002 - the query's own name
    zip: Text = None,  # noqa: A002
    near: Near = None,
    within_km: Annotated[float | None, Query(gt=0, le=20_100)] = None,
    open_now: bool | None = None,
    sort: Sort | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Hives by name, type, ZIP code and distance, with how full they are now."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    point = None if near is None else Point.parse(near)
    order = sort or (Sort.NAME if point is None else Sort.DISTANCE)
    query = HiveQuery(name, type, zip, point, within_km, open_now, order, limit, cursor)
    return tagged(request, await context.services.hives.search(query), PUBLIC)


@router.get("/map", response_model=Map)
async def map_of_hives(
    request: Request,
    caller: Reader,
    context: Context,
    bbox: Annotated[str, Query(max_length=100, examples=["13.0,52.3,13.8,52.7"])],
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
) -> Response:
    """Hives within a box, west,south,east,north, as GeoJSON."""
    box = Box.parse(bbox)
    if (answer := await from_cache(context.public, caller, request)) is not None:
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
    return tagged(request, {"type": "FeatureCollection", "features": features}, PUBLIC)


@router.get("/hive-types", response_model=list[HiveType])
async def list_types(request: Request, caller: Reader, context: Context) -> Response:
    """Restaurant, store, bar and so on."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.hives.types(), PUBLIC)


@router.post("/hive-types", status_code=201)
async def add_type(body: NewType, caller: Typist, services: Served) -> HiveType:
    return await services.hives.add_type(caller, body.code, body.name)


@router.get("/hives/{hive}", response_model=HiveDetail)
async def get_hive(request: Request, hive: Id, caller: Reader, context: Context) -> Response:
    """A hive with its pictures, its deals and how full it is."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.hives.detail(hive), PUBLIC)


@router.get("/hives/{hive}/occupancy", response_model=Occupancy)
async def get_occupancy(request: Request, hive: Id, caller: Reader, context: Context) -> Response:
    """How full it is, and whether that is usual. A stale figure says so and has no level."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.occupancy.live(hive))


@router.get("/hives/{hive}/typical-week", response_model=TypicalWeek)
async def get_week(request: Request, hive: Id, caller: Reader, context: Context) -> Response:
    """What is usual, by weekday and hour of the hive's own clock."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.occupancy.week(hive), PUBLIC)


@router.get("/hives/{hive}/forecast", response_model=Forecast)
async def get_forecast(
    request: Request, hive: Id, caller: Reader, context: Context, day: date | None = None
) -> Response:
    """Entries expected, by the hour, and when it will be busiest; of today unless a day is
    named."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    return tagged(request, await context.services.occupancy.forecast(hive, day), PUBLIC)


@router.get("/hives/{hive}/navigation", response_model=Navigation)
async def get_navigation(
    request: Request,
    hive: Id,
    caller: Reader,
    context: Context,
    start: Annotated[str | None, Query(alias="from", max_length=60)] = None,
) -> Response:
    """Where it is, and how far and in which direction from somewhere."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    point = None if start is None else Point.parse(start, "from")
    return tagged(request, await context.services.hives.navigation(hive, point), PUBLIC)


@router.get("/accounts/{account}/hives", response_model=Page[HiveSettings], tags=["business"])
async def list_own_hives(
    request: Request,
    account: Id,
    caller: Member,
    services: Served,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A business's hives, hidden and closed ones too."""
    return tagged(request, await services.hives.of_account(caller, account, cursor, limit))


@router.post("/accounts/{account}/hives", status_code=201, tags=["business"])
async def open_hive(
    account: Id, body: NewHive, caller: Editor, services: Served, response: Response
) -> HiveSettings:
    """A new hive, if the plan includes one more."""
    made = await services.hives.open(caller, account, _change(body.model_dump()))
    response.headers["Location"] = f"/v1/hives/{made.id}/settings"
    return made


@router.get("/hives/{hive}/settings", response_model=HiveSettings, tags=["business"])
async def get_settings(request: Request, hive: Id, caller: Member, services: Served) -> Response:
    """A hive as its business edits it; its ETag goes into If-Match."""
    return tagged(request, await services.hives.settings(caller, hive))


@router.patch("/hives/{hive}", response_model=HiveSettings, tags=["business"])
async def edit_hive(
    request: Request,
    hive: Id,
    body: HiveEdit,
    caller: Editor,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    """Change what is named; a capacity of null is none."""
    change = _change(named(body))
    return tagged(request, await services.hives.edit(caller, hive, change, seen))


@router.delete("/hives/{hive}", status_code=204, tags=["business"])
async def close_hive(hive: Id, caller: Editor, services: Served) -> None:
    """It is hidden and closed; what was counted stays."""
    await services.hives.close(caller, hive)


@router.post("/hives/{hive}/counts", status_code=201, tags=["business"])
async def count_heads(hive: Id, body: HeadCount, caller: Counter, services: Served) -> ManualCount:
    """Heads that somebody counted: the truth from then on."""
    return await services.occupancy.count(caller, hive, body.counted, body.at)


@router.get("/hives/{hive}/counts", tags=["business"])
async def list_counts(
    hive: Id, caller: Counter, services: Served, limit: Limit = 50
) -> list[ManualCount]:
    return await services.occupancy.counts(caller, hive, limit)


@router.get("/hives/{hive}/networks", tags=["business"])
async def list_networks(hive: Id, caller: Watcher, services: Served) -> list[Network]:
    return await services.occupancy.networks(caller, hive)


@router.post("/hives/{hive}/networks", status_code=201, tags=["business"])
async def add_network(hive: Id, body: NewNetwork, caller: Fitter, services: Served) -> Network:
    return await services.occupancy.add_network(caller, hive, body.model_dump())


@router.delete("/hives/{hive}/networks/{network}", status_code=204, tags=["business"])
async def remove_network(hive: Id, network: Id, caller: Fitter, services: Served) -> None:
    await services.occupancy.remove_network(caller, hive, network)


def _change(values: dict[str, Any]) -> HiveChange:
    """Parts of an address that are not named stay, as other fields do."""
    return HiveChange(values, values.pop("address", None))
