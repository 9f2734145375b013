"""Hives: found, looked at, opened, edited and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock_hives.alerts.models import THRESHOLDS, NotificationKind, NotificationSetting
from penstock_hives.billing.repository import PlanRepository
from penstock_hives.database import Connection, DatabasePool
from penstock_hives.deals.repository import DealRepository
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import FieldError, InvalidRequest, RequestConflict
from penstock_hives.occupancy.repository import OccupancyRepository
from penstock_hives.occupancy.service import require_owned_hive
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository
from penstock_hives.places import models
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
    HiveSort,
    HiveSummary,
    HiveType,
    Navigation,
)
from penstock_hives.places.repository import (
    FavouriteRepository,
    HiveRepository,
    NetworkRepository,
    NotificationSettingRepository,
)


class HiveService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def search(
        self, query: HiveQuery, box: BoundingBox | None = None
    ) -> CursorPage[HiveSummary]:
        if query.near is None and (query.sort is HiveSort.DISTANCE or query.within_km is not None):
            raise InvalidRequest(
                "distance from where?", [FieldError("near", "is needed for distances")]
            )
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).search(query, self._clock(), box)
        page = paginate(found, query.limit, lambda pair: (pair[1], pair[0].id))
        return CursorPage([hive for hive, _ in page.items], page.next)

    async def detail(self, hive: int) -> HiveDetail:
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).details(self._clock(), hive)
        if not found:
            raise NotFound(f"there is no hive {hive}")
        return found[0]

    async def navigation(self, hive: int, start: GeoPoint | None) -> Navigation:
        detail = await self.detail(hive)
        goal = None if detail.address is None else detail.address.point
        if detail.address is None or goal is None:
            raise NotFound(f"nobody has said where hive {hive} is")
        distance = None if start is None else round(start.distance_km(goal), 3)
        bearing = None if start is None else round(start.bearing(goal), 1)
        geo = f"geo:{goal.lat:.6f},{goal.lon:.6f}"
        return Navigation(hive, detail.name, detail.address, geo, distance, bearing)

    async def snapshot(self) -> HiveSnapshot:
        """All the public may see, as of one moment of the database."""
        now = self._clock()
        async with self._pool.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            hives, occupancy = HiveRepository(connection), OccupancyRepository(connection)
            everything = HiveQuery(limit=1_000_000)
            return HiveSnapshot(
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
        after = decode_cursor(cursor, int) or [0]
        async with self._pool.reading() as connection:
            found = await HiveRepository(connection).of_account(account, after[0], limit + 1)
        return paginate(found, limit, lambda hive: [hive.id])

    async def open(self, caller: Caller, account: int, change: HiveChange) -> HiveSettings:
        """A new hive of an account, as many as its plan includes."""
        caller.require(AppPermission.EDIT_HIVES, account)
        async with self._pool.transaction() as connection:
            hives, plans = HiveRepository(connection), PlanRepository(connection)
            if await plans.locked_account(account) != "active":
                raise RequestConflict(f"account {account} is not active")
            most = await plans.limit_of_account(account, "dashboard", "hives", self._clock())
            if most is not None and await hives.count_of(account) >= most:
                raise RequestConflict(f"the plan of account {account} includes {most} hives")
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
            held = _owned(caller, held, hive, AppPermission.EDIT_HIVES)
            check_if_match(held, seen)
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
            held = _owned(caller, held, hive, AppPermission.EDIT_HIVES)
            await hives.change(hive, {"status": "closed"})
            await AuditRepository(connection).record(caller, "close", "hive", hive, held.account_id)

    async def _values(self, hives: HiveRepository, change: HiveChange) -> dict[str, object]:
        """Columns of table `hive`."""
        values = dict(change.values)
        if "opening_hours" in values:
            values["opening_hours"] = models.check_opening_hours(values["opening_hours"])
        if (code := values.pop("type", None)) is not None:
            number = await hives.type_id(code)
            if number is None:
                raise InvalidRequest(
                    "no such type", [FieldError("type", f"{code!r} is no type of hive")]
                )
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
    """What the caller may see at all is not there for others."""
    if found is None or not caller.may(AppPermission.READ_ACCOUNT, found.account_id):
        raise NotFound(f"there is no hive {hive} of yours")
    caller.require(permission, found.account_id)
    return found


def _placed(given: object, held: HiveAddress | None = None) -> dict[str, object]:
    """Half a position is none."""
    assert isinstance(given, dict)
    lat = given.get("lat", held.lat if held else None)
    lon = given.get("lon", held.lon if held else None)
    if (lat is None) != (lon is None):
        raise InvalidRequest(
            "half a position", [FieldError("address", "has lat and lon, or neither")]
        )
    return given


# What somebody keeps of hives: favourites, where they were lately, what they want to be told.


class FavouriteService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def favour(self, caller: Caller, hive: int, on: bool) -> None:
        """Again, it changes nothing."""
        async with self._pool.transaction() as connection:
            await _visible(connection, hive, self._clock())
            await FavouriteRepository(connection).favour(caller.known, hive, on, self._clock())

    async def visit(self, caller: Caller, hive: int) -> None:
        async with self._pool.transaction() as connection:
            await _visible(connection, hive, self._clock())
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


class NotificationSettingService:
    """Settings of what to be told; as many as one's plan includes."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def of(self, caller: Caller) -> list[NotificationSetting]:
        async with self._pool.reading() as connection:
            return await NotificationSettingRepository(connection).of_user(caller.known)

    async def get(self, caller: Caller, number: int) -> NotificationSetting:
        async with self._pool.reading() as connection:
            return _there(
                await NotificationSettingRepository(connection).get(caller.known, number), number
            )

    async def define(self, caller: Caller, values: Mapping[str, Any]) -> NotificationSetting:
        _check(values)
        now = self._clock()
        async with self._pool.transaction() as connection:
            # One at a time for each user, or the limit could be passed.
            await connection.execute(
                "SELECT FROM app_user WHERE id = %s FOR UPDATE", (caller.known,)
            )
            definitions = NotificationSettingRepository(connection)
            most = await PlanRepository(connection).limit_of_user(
                caller.known, "alerts", "alerts", now
            )
            if most is not None and len(await definitions.of_user(caller.known)) >= most:
                raise RequestConflict(f"your plan includes {most} alerts")
            if values.get("hive_id") is not None:
                await _visible(connection, values["hive_id"], now)
            number = await definitions.add(caller.known, values)
            return _there(await definitions.get(caller.known, number), number)

    async def edit(
        self, caller: Caller, number: int, values: Mapping[str, Any], seen: str | None
    ) -> NotificationSetting:
        async with self._pool.transaction() as connection:
            definitions = NotificationSettingRepository(connection)
            held = _there(await definitions.get(caller.known, number, lock=True), number)
            check_if_match(held, seen)
            names = ("kind", "hive_id", "threshold", "unit", "hysteresis", "quiet_from", "quiet_to")
            _check({name: values.get(name, getattr(held, name)) for name in names})
            if values.get("hive_id") is not None:
                await _visible(connection, values["hive_id"], self._clock())
            await definitions.change(number, values)
            return _there(await definitions.get(caller.known, number), number)

    async def remove(self, caller: Caller, number: int) -> None:
        async with self._pool.transaction() as connection:
            if not await NotificationSettingRepository(connection).remove(caller.known, number):
                raise NotFound(f"you have no notification setting {number}")


def _check(values: Mapping[str, Any]) -> None:
    faults = []
    if NotificationKind(values["kind"]) in THRESHOLDS:
        faults += [
            FieldError(name, f"is needed for {values['kind']}")
            for name in ("hive_id", "threshold", "unit")
            if values.get(name) is None
        ]
    elif values.get("threshold") is not None or values.get("unit") is not None:
        faults.append(FieldError("threshold", f"has no meaning for {values['kind']}"))
    if values.get("unit") == "percent" and (values.get("threshold") or 0) > 1000:
        faults.append(FieldError("threshold", "is at most 1000 percent"))
    if (values.get("quiet_from") is None) != (values.get("quiet_to") is None):
        faults.append(FieldError("quiet_from", "comes with quiet_to, or neither does"))
    if faults:
        raise InvalidRequest("this could never be told", faults)


async def _visible(connection: Connection, hive: int, now: datetime) -> None:
    if not await HiveRepository(connection).summaries([hive], now):
        raise NotFound(f"there is no hive {hive}")


def _there(found: NotificationSetting | None, number: int) -> NotificationSetting:
    if found is None:
        raise NotFound(f"you have no notification setting {number}")
    return found


# The search for hives in memory, over what is cached: as the database does it, key for key.

#: After all that can be sorted.
_LAST: Final = 1e9

SortKey = tuple[str | float, int]


def search_hives(hives: Iterable[HiveSummary], query: HiveQuery) -> CursorPage[HiveSummary]:
    """A page of those that match. Whether they are open is as old as they are."""
    kind = str if query.sort is HiveSort.NAME else float
    after = decode_cursor(query.cursor, kind, int)
    found = []
    for hive in hives:
        distance = _distance(query.near, hive)
        if _matches(hive, query, distance):
            key = _key(hive, query.sort, distance)
            if after is None or key > (after[0], after[1]):
                rounded = None if distance is None else round(distance, 3)
                found.append((key, replace(hive, distance_km=rounded)))
    found.sort(key=lambda pair: pair[0])
    page = paginate(found[: query.limit + 1], query.limit, lambda pair: pair[0])
    return CursorPage([hive for _, hive in page.items], page.next)


def _matches(hive: HiveSummary, query: HiveQuery, distance: float | None) -> bool:
    zip_code = hive.address.zip if hive.address else None
    name = hive.name.lower()
    return (
        (query.type is None or hive.type == query.type)
        and (
            query.zip is None
            or (zip_code is not None and zip_code.upper().startswith(query.zip.upper()))
        )
        and all(word in name for word in (query.name or "").lower().split())
        and (query.open_now is None or hive.open_now == query.open_now)
        and (
            query.within_km is None
            or query.near is None
            or (distance is not None and distance <= query.within_km)
        )
    )


def _key(hive: HiveSummary, sort: HiveSort, distance: float | None) -> SortKey:
    if sort is HiveSort.NAME:
        return hive.name.lower(), hive.id
    if sort is HiveSort.DISTANCE:
        return _LAST if distance is None else distance, hive.id
    percent = hive.occupancy.percent if hive.occupancy else None
    return _LAST if percent is None else percent, hive.id


def _distance(near: GeoPoint | None, hive: HiveSummary) -> float | None:
    if near is None or hive.address is None or hive.address.point is None:
        return None
    return near.distance_km(hive.address.point)
