"""Figures for businesses: series, KPIs, comparisons, metrics of their own, insights."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock.hives.app.api.caller import Reader, allowed
from penstock.hives.app.api.context import Context, Served
from penstock.hives.app.api.etags import PUBLIC, IfMatch, tagged
from penstock.hives.app.api.fields import (
    Body,
    FirstDay,
    Id,
    LastDay,
    Line,
    Moment,
    Part,
    Ref,
    named,
    span,
    whole_days,
)
from penstock.hives.app.api.idempotency import IdempotentRoute
from penstock.hives.app.api.pages import Limit
from penstock.hives.app.api.public import from_cache
from penstock.hives.app.domain.analytics import (
    Bucket,
    Comparison,
    Demographics,
    Insight,
    Interest,
    Kpi,
    Lately,
    Metric,
    MetricValue,
    PeerComparison,
    Popularity,
    Recent,
    SeriesPoint,
    Shift,
    Window,
)
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.roles import Permission

router = APIRouter(route_class=IdempotentRoute, tags=["analytics"])

Analyst = Annotated[Caller, Depends(allowed(Permission.READ_ANALYTICS))]
Definer = Annotated[Caller, Depends(allowed(Permission.EDIT_METRICS))]

Hives = Annotated[list[Ref], Query(min_length=1, max_length=50, description="Of these hives.")]
From = Annotated[Moment, Query(alias="from")]
To = Annotated[Moment, Query(alias="to")]
Days = Annotated[int, Query(ge=1, le=366)]
Formula = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[\w\s+*/().,-]+$")]


class MetricFilter(Part):
    """Which hives and weekdays count; all of them, if it is not said."""

    hives: Annotated[list[Ref], Field(max_length=100)] | None = None
    weekdays: Annotated[list[Annotated[int, Field(ge=0, le=6)]], Field(max_length=7)] | None = None
    deal: Ref | None = None


class NewMetric(Body):
    """A formula over series of a hive's days, as `visits / deal_redemptions`."""

    name: Line
    formula: Formula
    filter: MetricFilter = MetricFilter()
    goal: Annotated[float, Field(allow_inf_nan=False)] | None = None
    window_days: Annotated[int, Field(ge=1, le=366)] = 7


class MetricEdit(Body):
    name: Line | None = None
    formula: Formula | None = None
    filter: MetricFilter | None = None
    goal: Annotated[float, Field(allow_inf_nan=False)] | None = None
    window_days: Annotated[int, Field(ge=1, le=366)] | None = None


@router.get("/analytics/occupancy")
async def occupancy_series(
    caller: Analyst,
    services: Served,
    hive: Hives,
    begin: From,
    end: To,
    bucket: Bucket = Bucket.HOUR,
) -> list[SeriesPoint]:
    """Entries, exits, peak and mean, by the hives' own clocks."""
    span(begin, end, 62 if bucket is Bucket.HOUR else 1100)
    return await services.analytics.series(caller, hive, begin, end, bucket)


@router.get("/analytics/kpis")
async def kpis(
    caller: Analyst, services: Served, hive: Hives, begin: FirstDay, end: LastDay
) -> list[Kpi]:
    """Visits, mean occupancy, peak hour and coverage of each day."""
    whole_days(begin, end)
    return await services.analytics.kpis(caller, hive, begin, end)


@router.get("/analytics/compare/hives")
async def compare_hives(
    caller: Analyst, services: Served, hive: Hives, begin: FirstDay, end: LastDay
) -> list[Window]:
    """The same days at several hives."""
    whole_days(begin, end)
    return await services.analytics.compare_hives(caller, hive, begin, end)


@router.get("/analytics/compare/peers")
async def compare_peers(
    caller: Analyst, services: Served, hive: Hives, window_days: Lately = Lately.MONTH
) -> list[PeerComparison]:
    """The last days beside those before, and beside other hives of the type, by the last night."""
    return await services.analytics.compare_peers(caller, hive, window_days)


@router.get("/analytics/compare/periods")
async def compare_periods(
    caller: Analyst,
    services: Served,
    hive: Annotated[Ref, Query()],
    before_from: date,
    before_to: date,
    after_from: date,
    after_to: date,
) -> Comparison:
    """The same hive before a change and after it, in windows of your choice."""
    whole_days(before_from, before_to)
    whole_days(after_from, after_to)
    return await services.analytics.compare_periods(
        caller, hive, (before_from, before_to), (after_from, after_to)
    )


@router.get("/hives/{hive}/demographics")
async def demographics(hive: Id, caller: Analyst, services: Served) -> Demographics:
    """Of those who keep the hive and chose to say; groups of ten and more."""
    return await services.analytics.demographics(caller, hive)


@router.get("/popular", response_model=list[Popularity])
async def popular_hives(
    request: Request,
    caller: Reader,
    context: Context,
    window_days: Recent = Recent.WEEK,
    by: Interest = Interest.ALL,
    limit: Limit = 20,
) -> Response:
    """Hives that are looked at, looked for, kept and visited most: by all of it, or by one."""
    if (answer := await from_cache(context.public, caller, request)) is not None:
        return answer
    found = await context.services.analytics.popular(window_days, by, limit)
    return tagged(request, found, PUBLIC)


@router.get("/analytics/shifts")
async def preference_shifts(
    caller: Analyst, services: Served, window_days: Recent = Recent.MONTH
) -> list[Shift]:
    """How the share of each type of hive has changed against the window before."""
    return await services.analytics.shifts(caller, window_days)


@router.get("/accounts/{account}/insights")
async def insights(
    account: Id,
    caller: Analyst,
    services: Served,
    hive: Annotated[Ref | None, Query()] = None,
    limit: Limit = 20,
) -> list[Insight]:
    """What stands out, in words."""
    return await services.analytics.insights(caller, account, hive, limit)


@router.get("/accounts/{account}/metrics")
async def list_metrics(account: Id, caller: Analyst, services: Served) -> list[Metric]:
    return await services.metrics.of_account(caller, account)


@router.post("/accounts/{account}/metrics", status_code=201)
async def define_metric(
    account: Id, body: NewMetric, caller: Definer, services: Served, response: Response
) -> Metric:
    """A metric of your own; its values are there after the next night."""
    made = await services.metrics.define(caller, account, body.model_dump())
    response.headers["Location"] = f"/v1/metrics/{made.id}"
    return made


@router.get("/metrics/{metric}", response_model=Metric)
async def get_metric(request: Request, metric: Id, caller: Analyst, services: Served) -> Response:
    return tagged(request, await services.metrics.get(caller, metric))


@router.patch("/metrics/{metric}", response_model=Metric)
async def edit_metric(
    request: Request,
    metric: Id,
    body: MetricEdit,
    caller: Definer,
    services: Served,
    seen: IfMatch = None,
) -> Response:
    return tagged(request, await services.metrics.edit(caller, metric, named(body), seen))


@router.delete("/metrics/{metric}", status_code=204)
async def remove_metric(metric: Id, caller: Definer, services: Served) -> None:
    await services.metrics.remove(caller, metric)


@router.get("/metrics/{metric}/values")
async def metric_values(
    metric: Id, caller: Analyst, services: Served, begin: FirstDay, end: LastDay
) -> list[MetricValue]:
    whole_days(begin, end)
    return await services.metrics.values(caller, metric, begin, end)
