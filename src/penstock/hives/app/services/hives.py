"""Hives: found, looked at, opened, edited and closed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock.core.errors import NotFound
from penstock.hives.app.domain import opening
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid
from penstock.hives.app.domain.geography import Box, Point
from penstock.hives.app.domain.hives import (
    Address,
    HiveChange,
    HiveDetail,
    HiveQuery,
    HiveSettings,
    HiveSummary,
    HiveType,
    Navigation,
    Snapshot,
    Sort,
)
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.deals import DealRepository
from penstock.hives.app.repositories.hives import HiveRepository
from penstock.hives.app.repositories.occupancy import OccupancyRepository
from penstock.hives.app.repositories.plans import PlanRepository
from penstock.hives.app.repositories.pool import Pool


class Hives:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def search(self, query: HiveQuery, box: Box | None = None) -> Listed[HiveSummary]:
        if query.near is None and (query.sort is Sort.DISTANCE or query.within_km is not None):
            raise Invalid("distance from where?", [Fault("near", "is needed for distances")])
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).search(query, self._clock(), box)
        page = listed(found, query.limit, lambda pair: (pair[1], pair[0].id))
        return Listed([hive for hive, _ in page.items], page.next)

    async def detail(self, hive: int) -> HiveDetail:
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).details(self._clock(), hive)
        if not found:
            raise NotFound(f"there is no hive {hive}")
        return found[0]

    async def navigation(self, hive: int, start: Point | None) -> Navigation:
        detail = await self.detail(hive)
        goal = None if detail.address is None else detail.address.point
        if detail.address is None or goal is None:
            raise NotFound(f"nobody has said where hive {hive} is")
        distance = None if start is None else round(start.distance_km(goal), 3)
        bearing = None if start is None else round(start.bearing(goal), 1)
        geo = f"geo:{goal.lat:.6f},{goal.lon:.6f}"
        return Navigation(hive, detail.name, detail.address, geo, distance, bearing)

    async def snapshot(self) -> Snapshot:
        """All the public may see, as of one moment of the database."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            hives, occupancy = HiveRepository(connection), OccupancyRepository(connection)
            everything = HiveQuery(limit=1_000_000)
            return Snapshot(
                now,
                tuple(hive for hive, _ in await hives.search(everything, now)),
                tuple(await hives.details(now)),
                tuple(await occupancy.weeks()),
                tuple(await occupancy.forecasts(now)),
                tuple(await hives.types()),
                tuple(await DealRepository(connection).active(now)),
            )

    async def types(self) -> list[HiveType]:
        async with self._pool.reading() as connection:
            return await HiveRepository(connection).types()

    async def add_type(self, caller: Caller, code: str, name: str) -> HiveType:
        caller.require(Permission.EDIT_TYPES)
        async with self._pool.transaction() as connection:
            made = await HiveRepository(connection).add_type(code, name)
            await AuditRepository(connection).record(caller, "add", "hive_type", made.id)
        return made

    async def settings(self, caller: Caller, hive: int) -> HiveSettings:
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).settings(hive)
        return _owned(caller, found, hive, Permission.READ_ACCOUNT)

    async def of_account(
        self, caller: Caller, account: int, cursor: str | None, limit: int
    ) -> Listed[HiveSettings]:
        caller.require(Permission.READ_ACCOUNT, account)
        after = unpack(cursor, int) or [0]
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).of_account(account, after[0], limit + 1)
        return listed(found, limit, lambda hive: [hive.id])

    async def open(self, caller: Caller, account: int, change: HiveChange) -> HiveSettings:
        """A new hive of an account, as many as its plan includes."""
        caller.require(Permission.EDIT_HIVES, account)
        async with self._pool.transaction() as connection:
            hives, plans = HiveRepository(connection), PlanRepository(connection)
            if await plans.locked_account(account) != "active":
                raise Conflict(f"account {account} is not active")
            most = await plans.limit_of_account(account, "dashboard", "hives", self._clock())
            if most is not None and await hives.count_of(account) >= most:
                raise Conflict(f"the plan of account {account} includes {most} hives")
            values = await self._values(hives, change) | {"account_id": account}
            address = None if change.address is None else _placed(change.address)
            hive = await hives.add(values, address)
            await AuditRepository(connection).record(caller, "open", "hive", hive, account)
            made = await hives.settings(hive)
        assert made is not None
        return made

    async def edit(
        self, caller: Caller, hive: int, change: HiveChange, seen: str | None = None
    ) -> HiveSettings:
        async with self._pool.transaction() as connection:
            hives = HiveRepository(connection)
            held = await hives.settings(hive, lock=True)
            held = _owned(caller, held, hive, Permission.EDIT_HIVES)
            unchanged(held, seen)
            await hives.change(hive, await self._values(hives, change))
            if change.address is not None:
                await hives.move(hive, _placed(change.address, held.address))
            names = sorted({*change.values, *(["address"] if change.address else [])})
            await AuditRepository(connection).record(
                caller, "edit", "hive", hive, held.account_id, {"fields": names}
            )
            made = await hives.settings(hive)
        assert made is not None
        return made

    async def close(self, caller: Caller, hive: int) -> None:
        """Hidden and no longer counted; what was counted stays."""
        async with self._pool.transaction() as connection:
            hives = HiveRepository(connection)
            held = await hives.settings(hive, lock=True)
            held = _owned(caller, held, hive, Permission.EDIT_HIVES)
            await hives.change(hive, {"status": "closed"})
            await AuditRepository(connection).record(caller, "close", "hive", hive, held.account_id)

    async def _values(self, hives: HiveRepository, change: HiveChange) -> dict[str, object]:
        """Columns of table `hive`."""
        values = dict(change.values)
        if "opening_hours" in values:
            values["opening_hours"] = opening.checked(values["opening_hours"])
        if (code := values.pop("type", None)) is not None:
            number = await hives.type_id(code)
            if number is None:
                raise Invalid("no such type", [Fault("type", f"{code!r} is no type of hive")])
            values["hive_type_id"] = number
        return values


def _owned(
    caller: Caller, found: HiveSettings | None, hive: int, permission: Permission
) -> HiveSettings:
    """What the caller may see at all is not there for others."""
    if found is None or not caller.may(Permission.READ_ACCOUNT, found.account_id):
        raise NotFound(f"there is no hive {hive} of yours")
    caller.require(permission, found.account_id)
    return found


def _placed(given: object, held: Address | None = None) -> dict[str, object]:
    """Half a position is none."""
    assert isinstance(given, dict)
    lat = given.get("lat", held.lat if held else None)
    lon = given.get("lon", held.lon if held else None)
    if (lat is None) != (lon is None):
        raise Invalid("half a position", [Fault("address", "has lat and lon, or neither")])
    return given
