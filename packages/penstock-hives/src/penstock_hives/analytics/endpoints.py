"""Figures for businesses: series, KPIs, comparisons, custom metrics, insights."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from penstock_hives.analytics.models import (
    AccountMetric,
    ComparisonDays,
    Demographics,
    Insight,
    Kpi,
    MetricValue,
    PeerComparison,
    PeriodComparison,
    PeriodSummary,
    Popularity,
    PopularityDays,
    PopularQuery,
    PreferenceShift,
    SeriesBucket,
    SeriesPoint,
)
from penstock_hives.api.dependencies import Reader, ServicesDep, require_permission
from penstock_hives.api.fields import (
    FirstDay,
    LastDay,
    ObjectId,
    PathId,
    RequestBody,
    RequestPart,
    ShortText,
    Timestamp,
    check_days,
    check_span,
    fields_set,
)
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import PUBLIC, IfMatch, Limit, PublicRoute, etag_response
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["analytics"])
public_router = APIRouter(route_class=PublicRoute, tags=["analytics"])

Analyst = Annotated[Caller, Depends(require_permission(AppPermission.READ_ANALYTICS))]
Definer = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_METRICS))]

Hives = Annotated[list[ObjectId], Query(min_length=1, max_length=50, description="Ids of hives.")]
From = Annotated[Timestamp, Query(alias="from")]
To = Annotated[Timestamp, Query(alias="to")]
Days = Annotated[int, Query(ge=1, le=366)]
Formula = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[\w\s+*/().,-]+$")]


class MetricFilter(RequestPart):
    """Hives and weekdays that count. The default is all."""

    hives: Annotated[list[ObjectId], Field(max_length=100)] | None = None
    weekdays: Annotated[list[Annotated[int, Field(ge=0, le=6)]], Field(max_length=7)] | None = None
    deal: ObjectId | None = None


class NewMetric(RequestBody):
    """A formula over daily series of a hive, such as `visits / deal_redemptions`."""

    name: ShortText
    formula: Formula
    filter: MetricFilter = MetricFilter()
    goal: Annotated[float, Field(allow_inf_nan=False)] | None = None
    window_days: Annotated[int, Field(ge=1, le=366)] = 7


class MetricEdit(RequestBody):
    name: ShortText | None = None
    formula: Formula | None = None
    filter: MetricFilter | None = None
    goal: Annotated[float, Field(allow_inf_nan=False)] | None = None
    window_days: Annotated[int, Field(ge=1, le=366)] | None = None


@router.get("/analytics/occupancy")
async def occupancy_series(
    caller: Analyst,
    services: ServicesDep,
    hive: Hives,
    begin: From,
    end: To,
    bucket: SeriesBucket = SeriesBucket.HOUR,
) -> list[SeriesPoint]:
    """Entries, exits, peak and mean, in local time."""
    check_span(begin, end, 62 if bucket is SeriesBucket.HOUR else 1100)
    return await services.analytics.series(caller, hive, begin, end, bucket)


@router.get("/analytics/kpis")
async def kpis(
    caller: Analyst, services: ServicesDep, hive: Hives, begin: FirstDay, end: LastDay
) -> list[Kpi]:
    """Visits, mean occupancy, peak hour and coverage of each day."""
    check_days(begin, end)
    return await services.analytics.kpis(caller, hive, begin, end)


@router.get("/analytics/compare/hives")
async def compare_hives(
    caller: Analyst, services: ServicesDep, hive: Hives, begin: FirstDay, end: LastDay
) -> list[PeriodSummary]:
    """The same days at several hives."""
    check_days(begin, end)
    return await services.analytics.compare_hives(caller, hive, begin, end)


@router.get("/analytics/compare/peers")
async def compare_peers(
    caller: Analyst,
    services: ServicesDep,
    hive: Hives,
    window_days: ComparisonDays = ComparisonDays.MONTH,
) -> list[PeerComparison]:
    """The last days compared with those before and with hives of the same type."""
    return await services.analytics.compare_peers(caller, hive, window_days)


@router.get("/analytics/compare/periods")
async def compare_periods(
    caller: Analyst,
    services: ServicesDep,
    hive: Annotated[ObjectId, Query()],
    before_from: date,
    before_to: date,
    after_from: date,
    after_to: date,
) -> PeriodComparison:
    """The same hive before and after a change, in periods of your choice."""
    check_days(before_from, before_to)
    check_days(after_from, after_to)
    return await services.analytics.compare_periods(
        caller, hive, (before_from, before_to), (after_from, after_to)
    )


@router.get("/hives/{hive}/demographics")
async def demographics(hive: PathId, caller: Analyst, services: ServicesDep) -> Demographics:
    """Of users with the hive among their favourites who entered it; groups of ten and more."""
    return await services.analytics.demographics(caller, hive)


@public_router.get("/popular", response_model=list[Popularity])
async def popular_hives(
    request: Request, caller: Reader, services: ServicesDep, query: Annotated[PopularQuery, Query()]
) -> Response:
    """The most popular hives by views, searches, favourites and visits, or by one of them."""
    found = await services.analytics.popular(query.window_days, query.by, query.limit)
    return etag_response(request, found, PUBLIC)


@router.get("/analytics/shifts")
async def preference_shifts(
    caller: Analyst, services: ServicesDep, window_days: PopularityDays = PopularityDays.MONTH
) -> list[PreferenceShift]:
    """Change of the share of each hive type since the period before."""
    return await services.analytics.shifts(caller, window_days)


@router.get("/accounts/{account}/insights")
async def insights(
    account: PathId,
    caller: Analyst,
    services: ServicesDep,
    hive: Annotated[ObjectId | None, Query()] = None,
    limit: Limit = 20,
) -> list[Insight]:
    """Insights in words."""
    return await services.analytics.insights(caller, account, hive, limit)


@router.get("/accounts/{account}/metrics")
async def list_metrics(
    account: PathId, caller: Analyst, services: ServicesDep
) -> list[AccountMetric]:
    """The custom metrics of an account."""
    return await services.metrics.of_account(caller, account)


@router.post("/accounts/{account}/metrics", status_code=201)
async def define_metric(
    account: PathId, body: NewMetric, caller: Definer, services: ServicesDep, response: Response
) -> AccountMetric:
    """A custom metric; its values are computed every night."""
    made = await services.metrics.define(caller, account, body.model_dump())
    response.headers["Location"] = f"/v1/metrics/{made.id}"
    return made


@router.get("/metrics/{metric}", response_model=AccountMetric)
async def get_metric(
    request: Request, metric: PathId, caller: Analyst, services: ServicesDep
) -> Response:
    """A custom metric."""
    return etag_response(request, await services.metrics.get(caller, metric))


@router.patch("/metrics/{metric}", response_model=AccountMetric)
async def edit_metric(
    request: Request,
    metric: PathId,
    body: MetricEdit,
    caller: Definer,
    services: ServicesDep,
    seen: IfMatch = None,
) -> Response:
    """Change the given fields of a custom metric."""
    return etag_response(
        request, await services.metrics.edit(caller, metric, fields_set(body), seen)
    )


@router.delete("/metrics/{metric}", status_code=204)
async def remove_metric(metric: PathId, caller: Definer, services: ServicesDep) -> None:
    """Remove a custom metric with its values."""
    await services.metrics.remove(caller, metric)


@router.get("/metrics/{metric}/values")
async def metric_values(
    metric: PathId, caller: Analyst, services: ServicesDep, begin: FirstDay, end: LastDay
) -> list[MetricValue]:
    """The values of a custom metric by day."""
    check_days(begin, end)
    return await services.metrics.values(caller, metric, begin, end)
