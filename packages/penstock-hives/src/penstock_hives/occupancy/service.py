"""How full hives are, were and will be; and heads that were counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.errors import FieldError, InvalidRequest, NotReady
from penstock_hives.occupancy.models import Forecast, Occupancy, TypicalWeek
from penstock_hives.occupancy.repository import OccupancyRepository
from penstock_hives.people.permissions import ANONYMOUS, AppPermission, Caller
from penstock_hives.people.repository import AuditRepository
from penstock_hives.places.models import HiveNetwork, ManualCount
from penstock_hives.places.repository import HiveRepository, NetworkRepository

#: A clock may be ahead of ours by so much.
_AHEAD: Final = timedelta(minutes=1)
_BACK: Final = timedelta(days=7)


class OccupancyService:
    """Of hives that are hidden, only for those who look after them."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def live(self, hive: int, caller: Caller = ANONYMOUS) -> Occupancy:
        async with self._pool.reading() as connection:
            hidden = await _looks_after(connection, caller, hive)
            repository = OccupancyRepository(connection)
            there, found = await repository.live(hive, self._clock(), hidden=hidden)
        if not there:
            raise NotFound(f"there is no hive {hive}")
        if found is None:
            raise NotReady(f"nothing was counted at hive {hive} yet")
        return found

    async def week(self, hive: int, caller: Caller = ANONYMOUS) -> TypicalWeek:
        """What is usual; without hours when nothing is known yet."""
        async with self._pool.reading() as connection:
            hidden = await _looks_after(connection, caller, hive)
            repository = OccupancyRepository(connection)
            found = await repository.weeks(hive, hidden=hidden)
            there = bool(found) or (await repository.live(hive, self._clock(), hidden=hidden))[0]
        if not there:
            raise NotFound(f"there is no hive {hive}")
        return found[0] if found else TypicalWeek(hive, None, ())

    async def forecast(self, hive: int, day: date | None, caller: Caller = ANONYMOUS) -> Forecast:
        """Of a local day, today if none is named."""
        async with self._pool.reading() as connection:
            hidden = await _looks_after(connection, caller, hive)
            repository = OccupancyRepository(connection)
            found = await repository.forecasts(self._clock(), hive, day, hidden=hidden)
        if not found:
            raise NotFound(f"there is no hive {hive}")
        return found[0]

    async def count(
        self, caller: Caller, hive: int, counted: int, at: datetime | None
    ) -> ManualCount:
        """The truth from then on; the pipeline reckons with it in its next batch."""
        now = self._clock()
        moment = at or now
        if not now - _BACK <= moment <= now + _AHEAD:
            raise InvalidRequest("not now", [FieldError("at", "is within the last seven days")])
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

    async def networks(self, caller: Caller, hive: int) -> list[HiveNetwork]:
        async with self._pool.reading() as connection:
            await require_owned_hive(connection, caller, hive, AppPermission.READ_SENSORS)
            return await NetworkRepository(connection).of_hive(hive)

    async def add_network(
        self, caller: Caller, hive: int, values: Mapping[str, Any]
    ) -> HiveNetwork:
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_SENSORS)
            made = await NetworkRepository(connection).add(hive, values)
            await AuditRepository(connection).record(caller, "add", "network", made.id, account)
        return made

    async def remove_network(self, caller: Caller, hive: int, network: int) -> None:
        async with self._pool.transaction() as connection:
            account = await require_owned_hive(connection, caller, hive, AppPermission.EDIT_SENSORS)
            if not await NetworkRepository(connection).remove(hive, network):
                raise NotFound(f"hive {hive} has no network {network}")
            await AuditRepository(connection).record(caller, "remove", "network", network, account)


async def _looks_after(connection: Connection, caller: Caller, hive: int) -> bool:
    if caller is ANONYMOUS:
        return False
    account = await HiveRepository(connection).account_of(hive)
    return account is not None and caller.may(AppPermission.READ_ANALYTICS, account)


async def require_owned_hive(
    connection: Connection, caller: Caller, hive: int, permission: AppPermission
) -> int:
    """The account of a hive in which the caller has the permission; others' hives are not there."""
    account = await HiveRepository(connection).account_of(hive)
    if account is None or not caller.may(AppPermission.READ_ACCOUNT, account):
        raise NotFound(f"there is no hive {hive} of yours")
    caller.require(permission, account)
    return account
