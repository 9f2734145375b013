"""Occupancy of hives: live, typical, forecast; and manual counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Final

from penstock.core.errors import NotFound
from penstock_hives.billing.models import OTHER_DAYS
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import FieldError, InvalidRequest, NotReady
from penstock_hives.occupancy.models import Forecast, HiveDay, Occupancy, TypicalWeek
from penstock_hives.occupancy.repository import OccupancyRepository
from penstock_hives.people.permissions import ANONYMOUS, AppPermission, Caller, PlanFeatureCode
from penstock_hives.people.repository import AuditRepository
from penstock_hives.places.models import ManualCount
from penstock_hives.places.repository import HiveRepository

#: How far a client's clock may be ahead.
_AHEAD: Final = timedelta(minutes=1)
_BACK: Final = timedelta(days=7)


class OccupancyService:
    """Hidden hives are visible to users with permission in their account only."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def live(self, hive: int, caller: Caller = ANONYMOUS) -> Occupancy:
        async with self._pool.reading() as connection:
            hidden = await _may_see_hidden(connection, caller, hive)
            repository = OccupancyRepository(connection)
            exists, found = await repository.live(hive, self._clock(), hidden=hidden)
        if not exists:
            raise NotFound(f"there is no hive {hive}")
        if found is None:
            raise NotReady(f"hive {hive} has no data yet")
        return found

    async def week(self, hive: int, caller: Caller = ANONYMOUS) -> TypicalWeek:
        """Without hours if nothing was computed yet."""
        async with self._pool.reading() as connection:
            hidden = await _may_see_hidden(connection, caller, hive)
            repository = OccupancyRepository(connection)
            found = await repository.weeks(hive, hidden=hidden)
            exists = bool(found) or (await repository.live(hive, self._clock(), hidden=hidden))[0]
        if not exists:
            raise NotFound(f"there is no hive {hive}")
        return found[0] if found else TypicalWeek(hive, None, ())

    async def forecast(self, hive: int, day: date | None, caller: Caller = ANONYMOUS) -> Forecast:
        """Of a local day, by default today; other days are a feature of plans."""
        feature = PlanFeatureCode.FORECASTS
        async with self._pool.reading() as connection:
            hidden = await _may_see_hidden(connection, caller, hive)
            repository = OccupancyRepository(connection)
            wanted = day if caller.includes(feature) else None
            found = await repository.forecasts(self._clock(), hive, wanted, hidden=hidden)
            if not found:
                raise NotFound(f"there is no hive {hive}")
            if day not in (None, found[0].day):
                raise await PlanRepository(connection).required(feature, OTHER_DAYS)
        return found[0]

    async def today(self, hive: int, caller: Caller = ANONYMOUS) -> HiveDay:
        async with self._pool.reading() as connection:
            hidden = await _may_see_hidden(connection, caller, hive)
            found = await OccupancyRepository(connection).days(self._clock(), hive, hidden=hidden)
        if not found:
            raise NotFound(f"there is no hive {hive}")
        return found[0]

    async def count(
        self, caller: Caller, hive: int, counted: int, at: datetime | None
    ) -> ManualCount:
        """Store a manual count; the pipeline applies it in its next batch."""
        now = self._clock()
        moment = at or now
        if not now - _BACK <= moment <= now + _AHEAD:
            raise InvalidRequest(
                f"at must be within the last seven days, got {moment.isoformat()}",
                [FieldError("at", "is within the last seven days")],
            )
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.COUNT_HEADS)
            by = f"user {caller.known}"
            made = await OccupancyRepository(connection).count(hive, moment, counted, by)
            await AuditRepository(connection).record(
                caller, "count", "hive", hive, account, {"counted": counted}
            )
        return made

    async def counts(self, caller: Caller, hive: int, limit: int) -> list[ManualCount]:
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.COUNT_HEADS)
            return await OccupancyRepository(connection).counts(hive, limit)


async def _may_see_hidden(connection: Connection, caller: Caller, hive: int) -> bool:
    if caller is ANONYMOUS:
        return False
    account = await HiveRepository(connection).account_of(hive)
    return account is not None and caller.may(AppPermission.READ_ANALYTICS, account)


async def require_owned_hive(
    connection: Connection, caller: Caller, hive: int, permission: AppPermission
) -> int:
    """The account of a hive, if the caller has the permission; hives of others are not found."""
    account = await HiveRepository(connection).account_of(hive)
    if account is None or not caller.may(AppPermission.READ_ACCOUNT, account):
        raise NotFound(f"there is no hive {hive} of yours")
    caller.require(permission, account)
    return account
