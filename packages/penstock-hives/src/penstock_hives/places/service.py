"""Hives: search, details, and their administration; favourites and recently viewed hives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.core.errors import NotFound
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.deals.repository import DealRepository
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import NotReady, RequestConflict, invalid_field, require_found
from penstock_hives.occupancy.repository import OccupancyRepository
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.pagination import CursorPage, decode_id, paginate
from penstock_hives.people.permissions import AppPermission, Caller, PlanFeatureCode
from penstock_hives.people.repository import AuditRepository
from penstock_hives.places.models import (
    BoundingBox,
    GeoPoint,
    HiveAddress,
    HiveChange,
    HiveDetail,
    HiveNetwork,
    HiveQuery,
    HiveSettings,
    HiveSnapshot,
    HiveSummary,
    HiveType,
    Navigation,
    check_opening_hours,
    navigation_to,
)
from penstock_hives.places.repository import FavouriteRepository, HiveRepository, NetworkRepository
from penstock_hives.places.search import hives_within, search_hives


class HiveService:
    def __init__(
        self,
        pool: DatabasePool,
        clock: Callable[[], datetime],
        in_memory: Callable[[], list[HiveSummary]] | None = None,
    ) -> None:
        """`in_memory` returns all public hives, or raises `NotReady`; without it each search reads
        them from the database."""
        self._pool = pool
        self._clock = clock
        self._in_memory = in_memory

    async def search(self, query: HiveQuery) -> CursorPage[HiveSummary]:
        page = search_hives(await self._known(), query)
        fresh = await self._fresh(page.items)
        found = [
            replace(fresh[hive.id], distance_km=hive.distance_km)
            for hive in page.items
            if hive.id in fresh
        ]
        return CursorPage(found, page.next)

    async def within(self, box: BoundingBox, limit: int) -> list[HiveSummary]:
        found = hives_within(await self._known(), box, limit)
        fresh = await self._fresh(found)
        return [fresh[hive.id] for hive in found if hive.id in fresh]

    async def _known(self) -> list[HiveSummary]:
        """All public hives, at most a minute old if they are in memory."""
        if self._in_memory is not None:
            with suppress(NotReady):
                return self._in_memory()
        async with self._pool.reading() as connection:
            return await HiveRepository(connection).all_summaries(self._clock())

    async def _fresh(self, found: Sequence[HiveSummary]) -> dict[int, HiveSummary]:
        """The same hives as they are now; without those that are not public any more."""
        ids = [hive.id for hive in found]
        async with self._pool.reading() as connection:
            summaries = await HiveRepository(connection).summaries(ids, self._clock())
        return {hive.id: hive for hive in summaries}

    async def detail(self, hive: int) -> HiveDetail:
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).details(self._clock(), hive)
        return require_found(next(iter(found), None), f"hive {hive}")

    async def navigation(self, hive: int, start: GeoPoint | None) -> Navigation:
        return navigation_to(await self.detail(hive), start)

    async def snapshot(self) -> HiveSnapshot:
        """All public data, in one snapshot of the database."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            hives, occupancy = HiveRepository(connection), OccupancyRepository(connection)
            return HiveSnapshot(
                now,
                tuple(await hives.all_summaries(now)),
                tuple(await hives.details(now)),
                tuple(await occupancy.weeks()),
                tuple(await occupancy.forecasts(now)),
                tuple(await occupancy.days(now)),
                tuple(await hives.types()),
                tuple(await DealRepository(connection).active(now)),
            )

    async def types(self) -> list[HiveType]:
        async with self._pool.reading() as connection:
            return await HiveRepository(connection).types()

    async def add_type(self, caller: Caller, code: str, name: str) -> HiveType:
        caller.require(AppPermission.EDIT_TYPES)
        async with self._pool.transaction() as connection:
            made = await HiveRepository(connection).add_type(code, name)
            await AuditRepository(connection).record(caller, "add", "hive_type", made.id)
        return made

    async def settings(self, caller: Caller, hive: int) -> HiveSettings:
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).settings(hive)
        return _owned(caller, found, hive, AppPermission.READ_ACCOUNT)

    async def of_account(
        self, caller: Caller, account: int, cursor: str | None, limit: int
    ) -> CursorPage[HiveSettings]:
        caller.require(AppPermission.READ_ACCOUNT, account)
        after = decode_id(cursor) or 0
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).of_account(account, after, limit + 1)
        return paginate(found, limit, lambda hive: [hive.id])

    async def open(self, caller: Caller, account: int, change: HiveChange) -> HiveSettings:
        """Open a hive, within the limit of the account's plan."""
        caller.require(AppPermission.EDIT_HIVES, account)
        async with self._pool.transaction() as connection:
            hives, plans = HiveRepository(connection), PlanRepository(connection)
            if await plans.locked_account(account) != "active":
                raise RequestConflict(f"account {account} is not active")
            feature = PlanFeatureCode.DASHBOARD
            most = await plans.limit_of_account(account, feature, "hives", self._clock())
            if most is not None and await hives.count_of(account) >= most:
                detail = f"the plan of account {account} includes {most} hives"
                raise await plans.required(feature, detail, most)
            values = await self._values(hives, change) | {"account_id": account}
            address = None if change.address is None else _check_address(change.address)
            hive = await hives.add(values, address)
            await AuditRepository(connection).record(caller, "open", "hive", hive, account)
            return require_found(await hives.settings(hive), f"hive {hive}")

    async def edit(
        self, caller: Caller, hive: int, change: HiveChange, seen: str | None = None
    ) -> HiveSettings:
        async with self._pool.transaction() as connection:
            hives = HiveRepository(connection)
            held = await hives.settings(hive, lock=True)
            held = _owned(caller, held, hive, AppPermission.EDIT_HIVES)
            check_if_match(held, seen)
            await hives.change(hive, await self._values(hives, change))
            if change.address is not None:
                await hives.move(hive, _check_address(change.address, held.address))
            names = sorted({*change.values, *(["address"] if change.address else [])})
            await AuditRepository(connection).record(
                caller, "edit", "hive", hive, held.account_id, {"fields": names}
            )
            return require_found(await hives.settings(hive), f"hive {hive}")

    async def close(self, caller: Caller, hive: int) -> None:
        """Hide the hive and stop counting; its data stays."""
        async with self._pool.transaction() as connection:
            hives = HiveRepository(connection)
            held = await hives.settings(hive, lock=True)
            held = _owned(caller, held, hive, AppPermission.EDIT_HIVES)
            await hives.change(hive, {"status": "closed"})
            await AuditRepository(connection).record(caller, "close", "hive", hive, held.account_id)

    async def _values(self, hives: HiveRepository, change: HiveChange) -> dict[str, object]:
        """Columns of table `hive`."""
        values = dict(change.values)
        if "opening_hours" in values:
            values["opening_hours"] = check_opening_hours(values["opening_hours"])
        if (code := values.pop("type", None)) is not None:
            number = await hives.type_id(code)
            if number is None:
                raise invalid_field("type", f"must be a hive type, got {code!r}")
            values["hive_type_id"] = number
        return values

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


def _owned(
    caller: Caller, found: HiveSettings | None, hive: int, permission: AppPermission
) -> HiveSettings:
    """Hives of other accounts look as if they did not exist."""
    if found is None or not caller.may(AppPermission.READ_ACCOUNT, found.account_id):
        raise NotFound(f"hive {hive} not found")
    caller.require(permission, found.account_id)
    return found


def _check_address(given: Mapping[str, Any], held: HiveAddress | None = None) -> Mapping[str, Any]:
    lat = given.get("lat", held.lat if held else None)
    lon = given.get("lon", held.lon if held else None)
    if (lat is None) != (lon is None):
        raise invalid_field("address", "must have both lat and lon, or neither")
    return given


class FavouriteService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def favour(self, caller: Caller, hive: int, on: bool) -> None:
        async with self._pool.transaction() as connection:
            await require_visible_hive(connection, hive, self._clock())
            await FavouriteRepository(connection).favour(caller.known, hive, on, self._clock())

    async def visit(self, caller: Caller, hive: int) -> None:
        async with self._pool.transaction() as connection:
            await require_visible_hive(connection, hive, self._clock())
            await FavouriteRepository(connection).visit(caller.known, hive, self._clock())

    async def favourites(self, caller: Caller) -> list[HiveSummary]:
        """The newest first."""
        async with self._pool.reading() as connection:
            hives = await FavouriteRepository(connection).favourites(caller.known)
            return await HiveRepository(connection).summaries(hives, self._clock())

    async def recent(self, caller: Caller, limit: int) -> list[HiveSummary]:
        async with self._pool.reading() as connection:
            hives = await FavouriteRepository(connection).recent(caller.known, limit)
            return await HiveRepository(connection).summaries(hives, self._clock())


async def require_visible_hive(connection: Connection, hive: int, now: datetime) -> None:
    if not await HiveRepository(connection).summaries([hive], now):
        raise NotFound(f"hive {hive} not found")
