"""Figures for businesses about their hives, for users about themselves, for operators about all.

The pipeline computes them in advance; a request aggregates a few rows at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock_hives.analytics.formula import Formula, InvalidFormula
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
    PopularityMeasure,
    PreferenceShift,
    SeriesBucket,
    SeriesPoint,
    Usage,
)
from penstock_hives.analytics.repository import AnalyticsRepository, MetricRepository
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import FieldError, InvalidRequest
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.people.permissions import AppPermission, Caller, PlanFeatureCode
from penstock_hives.people.repository import AuditRepository

#: How old a reported action may be.
_BACK: Final = timedelta(days=2)


class AnalyticsService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def series(
        self,
        caller: Caller,
        hives: Sequence[int],
        begin: datetime,
        end: datetime,
        bucket: SeriesBucket,
    ) -> list[SeriesPoint]:
        async with self._pool.reading() as connection:
            await _require_hives(connection, caller, hives)
            return await AnalyticsRepository(connection).series(hives, begin, end, bucket)

    async def kpis(self, caller: Caller, hives: Sequence[int], begin: date, end: date) -> list[Kpi]:
        async with self._pool.reading() as connection:
            await _require_hives(connection, caller, hives)
            return await AnalyticsRepository(connection).kpis(hives, begin, end)

    async def compare_hives(
        self, caller: Caller, hives: Sequence[int], begin: date, end: date
    ) -> list[PeriodSummary]:
        async with self._pool.reading() as connection:
            await _require_hives(connection, caller, hives)
            return await AnalyticsRepository(connection).windows(hives, begin, end)

    async def compare_peers(
        self, caller: Caller, hives: Sequence[int], window: ComparisonDays
    ) -> list[PeerComparison]:
        """As of the last night; hives that were not compared yet are missing."""
        async with self._pool.reading() as connection:
            await _require_hives(connection, caller, hives)
            return await AnalyticsRepository(connection).peers(hives, window)

    async def compare_periods(
        self, caller: Caller, hive: int, before: tuple[date, date], after: tuple[date, date]
    ) -> PeriodComparison:
        async with self._pool.reading() as connection:
            await _require_hives(connection, caller, [hive])
            repository = AnalyticsRepository(connection)
            [first] = await repository.windows([hive], *before)
            [second] = await repository.windows([hive], *after)
        return PeriodComparison(
            first,
            second,
            _change(first.visits_a_day, second.visits_a_day),
            _change(first.mean_occupancy, second.mean_occupancy),
        )

    async def demographics(self, caller: Caller, hive: int) -> Demographics:
        """Of users with the hive among their favourites who entered it; groups of ten and more."""
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.READ_ANALYTICS)
            return await AnalyticsRepository(connection).demographics(hive)

    async def popular(self, window: int, by: PopularityMeasure, limit: int) -> list[Popularity]:
        async with self._pool.reading() as connection:
            return await AnalyticsRepository(connection).popular(window, by, limit)

    async def shifts(self, caller: Caller, window: int) -> list[PreferenceShift]:
        caller.require(AppPermission.READ_ANALYTICS)
        async with self._pool.reading() as connection:
            return await AnalyticsRepository(connection).shifts(window)

    async def insights(
        self, caller: Caller, account: int, hive: int | None, limit: int
    ) -> list[Insight]:
        caller.require(AppPermission.READ_ANALYTICS, account)
        async with self._pool.reading() as connection:
            return await MetricRepository(connection).insights(account, hive, limit)


#: Actions that are counted with the deal.
_DEAL_EVENTS: Final = {"deal_show": "shown", "deal_open": "opened"}


class ActivityService:
    """User actions: recorded by the applications, summarised for users and operators."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def record(self, caller: Caller, events: Sequence[Mapping[str, Any]]) -> int:
        """Times that are not plausible are replaced by now."""
        now = self._clock()
        rows = []
        for each in events:
            at = each.get("at")
            if at is None or not now - _BACK <= at <= now:
                at = now
            rows.append({**each, "user_id": caller.id, "at": at})
        deals = [
            {**each, "kind": _DEAL_EVENTS[each["action"]]}
            for each in rows
            if each["action"] in _DEAL_EVENTS and each["deal_id"] is not None
        ]
        async with self._pool.transaction() as connection:
            repository = AnalyticsRepository(connection)
            await repository.record([each for each in rows if each["action"] != "deal_show"])
            await repository.record_deals(deals)
        return len(rows)

    async def mine(self, caller: Caller, days: int, limit: int) -> Usage:
        since = self._clock() - timedelta(days=days)
        async with self._pool.reading() as connection:
            return await AnalyticsRepository(connection).usage(caller.known, since, limit)

    async def everybody(self, caller: Caller, days: int, limit: int) -> Usage:
        caller.require(AppPermission.READ_USAGE)
        since = self._clock() - timedelta(days=days)
        async with self._pool.reading() as connection:
            return await AnalyticsRepository(connection).usage(None, since, limit)


class MetricService:
    """Custom metrics: formulas that are evaluated every night."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def of_account(self, caller: Caller, account: int) -> list[AccountMetric]:
        caller.require(AppPermission.READ_ANALYTICS, account)
        async with self._pool.reading() as connection:
            return await MetricRepository(connection).of_account(account)

    async def get(self, caller: Caller, metric: int) -> AccountMetric:
        async with self._pool.reading() as connection:
            return await self._visible(connection, caller, metric)

    async def define(
        self, caller: Caller, account: int, values: Mapping[str, Any]
    ) -> AccountMetric:
        caller.require(AppPermission.EDIT_METRICS, account)
        check_formula(values["formula"])
        async with self._pool.transaction() as connection:
            plans, metrics = PlanRepository(connection), MetricRepository(connection)
            if await plans.locked_account(account) is None:
                raise NotFound(f"there is no account {account}")
            feature = PlanFeatureCode.CUSTOM_METRICS
            most = await plans.limit_of_account(account, feature, "metrics", self._clock()) or 0
            if len(await metrics.of_account(account)) >= most:
                detail = f"the plan of account {account} includes {most} metrics"
                raise await plans.required(feature, detail, most)
            number = await metrics.add({**values, "account_id": account})
            await AuditRepository(connection).record(caller, "define", "metric", number, account)
            made = await metrics.get(number)
        assert made is not None
        return made

    async def edit(
        self, caller: Caller, metric: int, values: Mapping[str, Any], seen: str | None
    ) -> AccountMetric:
        if (formula := values.get("formula")) is not None:
            check_formula(formula)
        async with self._pool.transaction() as connection:
            found = await self._visible(connection, caller, metric, lock=True)
            caller.require(AppPermission.EDIT_METRICS, found.account_id)
            check_if_match(found, seen)
            metrics = MetricRepository(connection)
            await metrics.change(metric, values)
            await AuditRepository(connection).record(
                caller, "edit", "metric", metric, found.account_id, {"fields": sorted(values)}
            )
            made = await metrics.get(metric)
        assert made is not None
        return made

    async def remove(self, caller: Caller, metric: int) -> None:
        async with self._pool.transaction() as connection:
            found = await self._visible(connection, caller, metric, lock=True)
            caller.require(AppPermission.EDIT_METRICS, found.account_id)
            await MetricRepository(connection).remove(metric)
            await AuditRepository(connection).record(
                caller, "remove", "metric", metric, found.account_id
            )

    async def values(
        self, caller: Caller, metric: int, begin: date, end: date
    ) -> list[MetricValue]:
        async with self._pool.reading() as connection:
            await self._visible(connection, caller, metric)
            return await MetricRepository(connection).values(metric, begin, end)

    async def _visible(
        self, connection: Connection, caller: Caller, metric: int, *, lock: bool = False
    ) -> AccountMetric:
        found = await MetricRepository(connection).get(metric, lock=lock)
        if found is None or not caller.may(AppPermission.READ_ANALYTICS, found.account_id):
            raise NotFound(f"there is no metric {metric} of yours")
        return found


async def _require_hives(connection: Connection, caller: Caller, hives: Sequence[int]) -> None:
    accounts = await AnalyticsRepository(connection).accounts_of(hives)
    for hive in hives:
        account = accounts.get(hive)
        if account is None or not caller.may(AppPermission.READ_ACCOUNT, account):
            raise NotFound(f"there is no hive {hive} of yours")
        caller.require(AppPermission.READ_ANALYTICS, account)


def _change(before: float | None, after: float | None) -> float | None:
    if before is None or after is None or before == 0:
        return None
    return round(after / before - 1, 4)


def check_formula(text: str) -> None:
    try:
        Formula.parse(text)
    except InvalidFormula as error:
        raise InvalidRequest("invalid formula", [FieldError("formula", str(error))]) from None
