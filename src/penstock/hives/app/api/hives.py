"""Hives as everybody sees them: the list and the search, one hive, its figures, the map."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from penstock.hives.app.api.caller import Reader
from penstock.hives.app.api.context import Context
from penstock.hives.app.api.etags import PUBLIC, tagged
from penstock.hives.app.api.fields import Body, Id, Word
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Cursor, Limit, Page
from penstock.hives.app.api.public import from_cache
from penstock.hives.app.domain.geography import Box, Point
from penstock.hives.app.domain.hives import (
    HiveDetail,
    HiveQuery,
    HiveSummary,
    HiveType,
    Navigation,
    Sort,
)
from penstock.hives.app.domain.occupancy import Forecast, Occupancy, TypicalWeek

router = APIRouter(route_class=IdempotentRoute, tags=["hives"])

Text = Annotated[str | None, Query(min_length=1, max_length=100, pattern="^[^\\x00]*$")]
Near = Annotated[
    str | None, Query(max_length=60, description="Latitude, longitude.", examples=["52.52,13.405"])
]


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
