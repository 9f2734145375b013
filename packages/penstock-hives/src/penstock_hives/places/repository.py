"""Hives, favourites and networks in SQL, and the columns that other repositories share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from penstock_hives.database import Connection, fetch_all, insert_row, update_row
from penstock_hives.deals.models import Deal
from penstock_hives.images.models import HiveImage, image_url
from penstock_hives.occupancy.models import Occupancy, compare_with_usual
from penstock_hives.places.models import (
    HiveAddress,
    HiveDetail,
    HiveNetwork,
    HiveSettings,
    HiveSummary,
    HiveType,
    next_change,
)

#: Of deals `d` and their hives `h`.
DEAL_COLUMNS = """
    d.id, d.hive_id, h.name AS hive_name, h.time_zone, d.title, d.description, d.terms, d.kind,
    d.starts_at, d.expires_at, d.status, d.max_redemptions, d.redemptions, d.updated_at
"""
#: Deals that are valid at `now`.
ACTIVE_DEAL = """
    d.status = 'published' AND d.starts_at <= %(now)s AND d.expires_at > %(now)s
    AND (d.max_redemptions IS NULL OR d.redemptions < d.max_redemptions)
"""
#: Public hives.
VISIBLE_HIVE = "h.public AND h.status = 'active'"
IMAGE_COLUMNS = """
    id, hive_id, kind, mime, width, height, bytes, caption, position, created_at
"""
#: The status `s` of hives `h`, and the typical week `w` at this hour.
OCCUPANCY_COLUMNS = """
    s.occupancy, s.percent, s.level, s.trend, s.quality, s.as_of, s.version,
    w.occupancy AS usual, w.weeks
"""
OCCUPANCY_JOINS = """
    LEFT JOIN hive_status s ON s.hive_id = h.id
    LEFT JOIN typical_week w ON w.hive_id = h.id
        AND w.weekday = extract(isodow FROM %(now)s AT TIME ZONE h.time_zone) - 1
        AND w.hour = extract(hour FROM %(now)s AT TIME ZONE h.time_zone)
"""
ADDRESS_COLUMNS = "a.id AS address_id, a.street, a.city, a.zip, a.country, a.lat, a.lon"


def image_from_row(row: dict[str, Any]) -> HiveImage:
    return HiveImage(**row, url=image_url(row["id"]))


def address_from_row(row: dict[str, Any]) -> HiveAddress | None:
    if row["address_id"] is None:
        return None
    names = ("street", "city", "zip", "country", "lat", "lon")
    return HiveAddress(**{name: row[name] for name in names})


def occupancy_from_row(hive: int, row: dict[str, Any]) -> Occupancy | None:
    if row["version"] is None:
        return None
    percent = row["percent"]
    return Occupancy(
        hive,
        row["occupancy"],
        None if percent is None else round(percent, 1),
        row["level"],
        row["trend"],
        row["quality"],
        row["as_of"],
        row["version"],
        compare_with_usual(row["occupancy"], row["quality"], row["usual"], row["weeks"]),
    )


#: A hive whose hours are not known is not said to be closed.
_OPEN_NOW: Final = """
    (NOT jsonb_path_exists(h.opening_hours, '$.*[*]')
     OR hive_open(h.opening_hours, h.time_zone, %(now)s)) AS open_now
"""
_SUMMARY: Final = f"""
    SELECT h.id, h.name, t.code AS type, t.name AS type_name, h.capacity, h.time_zone,
           {_OPEN_NOW}, i.id AS cover, h.opening_hours, h.updated_at,
           {ADDRESS_COLUMNS}, {OCCUPANCY_COLUMNS}
    FROM hive h
    JOIN hive_type t ON t.id = h.hive_type_id
    LEFT JOIN address a ON a.id = h.address_id
    LEFT JOIN hive_image i ON i.hive_id = h.id AND i.kind = 'cover'
    {OCCUPANCY_JOINS}
    WHERE {VISIBLE_HIVE} AND (%(only)s::bigint[] IS NULL OR h.id = ANY (%(only)s))
    ORDER BY h.id
"""
_DETAIL: Final = f"""
    SELECT h.id, h.account_id, h.name, h.description, t.code AS type, t.name AS type_name,
           h.capacity, h.time_zone, h.opening_hours, h.badge, h.updated_at, {_OPEN_NOW},
           {ADDRESS_COLUMNS}, {OCCUPANCY_COLUMNS}
    FROM hive h
    JOIN hive_type t ON t.id = h.hive_type_id
    LEFT JOIN address a ON a.id = h.address_id
    {OCCUPANCY_JOINS}
    WHERE {VISIBLE_HIVE} AND (%(hive)s::bigint IS NULL OR h.id = %(hive)s)
    ORDER BY h.id
"""
_IMAGES: Final = f"SELECT {IMAGE_COLUMNS} FROM hive_image ORDER BY hive_id, position, id"
_IMAGES_OF: Final = f"""
    SELECT {IMAGE_COLUMNS} FROM hive_image WHERE hive_id = %(hive)s ORDER BY position, id
"""
_DEALS: Final = f"""
    SELECT {DEAL_COLUMNS} FROM deal d JOIN hive h ON h.id = d.hive_id
    WHERE {ACTIVE_DEAL} AND {VISIBLE_HIVE} AND (%(hive)s::bigint IS NULL OR d.hive_id = %(hive)s)
    ORDER BY d.expires_at, d.id
"""
_SETTINGS: Final = f"""
    SELECT h.id, h.account_id, h.name, h.description, t.code AS type, h.capacity, h.time_zone,
           h.opening_hours, h.reset_time, h.public, h.badge, h.status, h.created_at, h.updated_at,
           {ADDRESS_COLUMNS}
    FROM hive h
    JOIN hive_type t ON t.id = h.hive_type_id
    LEFT JOIN address a ON a.id = h.address_id
"""


class HiveRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all_summaries(self, now: datetime) -> list[HiveSummary]:
        """Of all public hives."""
        return await self._summaries(now, None)

    async def summaries(self, hives: Sequence[int], now: datetime) -> list[HiveSummary]:
        """Of public hives, in the order of the given ids."""
        by_id = {each.id: each for each in await self._summaries(now, hives)}
        return [by_id[hive] for hive in hives if hive in by_id]

    async def _summaries(self, now: datetime, only: Sequence[int] | None) -> list[HiveSummary]:
        given = {"now": now, "only": None if only is None else list(only)}
        found = await (await self._connection.execute(_SUMMARY, given)).fetchall()
        return [_summary(row, now) for row in found]

    async def details(self, now: datetime, hive: int | None = None) -> list[HiveDetail]:
        """Of one public hive, or of all."""
        given = {"now": now, "hive": hive}
        execute = self._connection.execute
        found = await (await execute(_DETAIL, given)).fetchall()
        if not found:
            return []
        pictures = await (await execute(_IMAGES if hive is None else _IMAGES_OF, given)).fetchall()
        deals = await (await execute(_DEALS, given)).fetchall()
        images_of = _grouped([image_from_row(row) for row in pictures])
        deals_of = _grouped([Deal(**row) for row in deals])
        return [
            _detail(row, now, images_of.get(row["id"], ()), deals_of.get(row["id"], ()))
            for row in found
        ]

    async def settings(self, hive: int, *, lock: bool = False) -> HiveSettings | None:
        statement = f"{_SETTINGS} WHERE h.id = %(hive)s {'FOR UPDATE OF h' if lock else ''}"
        row = await (await self._connection.execute(statement, {"hive": hive})).fetchone()
        return None if row is None else _settings(row)

    async def of_account(self, account: int, after: int, limit: int) -> list[HiveSettings]:
        statement = f"""
            {_SETTINGS} WHERE h.account_id = %(account)s AND h.id > %(after)s
            ORDER BY h.id LIMIT %(limit)s
        """
        given = {"account": account, "after": after, "limit": limit}
        found = await (await self._connection.execute(statement, given)).fetchall()
        return [_settings(row) for row in found]

    async def account_of(self, hive: int) -> int | None:
        statement = "SELECT account_id FROM hive WHERE id = %s"
        row = await (await self._connection.execute(statement, (hive,))).fetchone()
        return None if row is None else row["account_id"]

    async def count_of(self, account: int) -> int:
        statement = "SELECT count(*) AS n FROM hive WHERE account_id = %s AND status = 'active'"
        row = await (await self._connection.execute(statement, (account,))).fetchone()
        assert row is not None
        return int(row["n"])

    async def add(self, values: Mapping[str, Any], address: Mapping[str, Any] | None) -> int:
        held = dict(values)
        if address is not None:
            held["address_id"] = await insert_row(self._connection, "address", address)
        return await insert_row(self._connection, "hive", held)

    async def change(self, hive: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "hive", hive, values)

    async def move(self, hive: int, address: Mapping[str, Any]) -> None:
        """Change fields of the address."""
        row = await (
            await self._connection.execute("SELECT address_id FROM hive WHERE id = %s", (hive,))
        ).fetchone()
        held = row["address_id"] if row else None
        if held is None:
            new = await insert_row(self._connection, "address", address)
            await self._connection.execute(
                "UPDATE hive SET address_id = %s WHERE id = %s", (new, hive)
            )
        elif address:
            await update_row(self._connection, "address", held, address)
            # The settings have changed, and so must their ETag.
            await self._connection.execute(
                "UPDATE hive SET updated_at = now() WHERE id = %s", (hive,)
            )

    async def types(self) -> list[HiveType]:
        statement = "SELECT id, code, name FROM hive_type ORDER BY code"
        return await fetch_all(self._connection, HiveType, statement)

    async def type_id(self, code: str) -> int | None:
        statement = "SELECT id FROM hive_type WHERE code = %s"
        row = await (await self._connection.execute(statement, (code,))).fetchone()
        return None if row is None else row["id"]

    async def add_type(self, code: str, name: str) -> HiveType:
        number = await insert_row(self._connection, "hive_type", {"code": code, "name": name})
        return HiveType(number, code, name)


def _summary(row: dict[str, Any], now: datetime) -> HiveSummary:
    return HiveSummary(
        **{
            name: row[name]
            for name in ("id", "name", "type", "type_name", "capacity", "time_zone", "open_now")
        },
        address=address_from_row(row),
        changes_at=next_change(row["opening_hours"], row["time_zone"], now),
        cover=None if row["cover"] is None else image_url(row["cover"]),
        occupancy=occupancy_from_row(row["id"], row),
        updated_at=row["as_of"] or row["updated_at"],
    )


def _detail(
    row: dict[str, Any], now: datetime, images: Sequence[Any], deals: Sequence[Any]
) -> HiveDetail:
    plain = ("id", "account_id", "name", "description", "type", "type_name", "capacity")
    more = ("time_zone", "opening_hours", "open_now", "badge", "updated_at")
    return HiveDetail(
        **{name: row[name] for name in (*plain, *more)},
        address=address_from_row(row),
        changes_at=next_change(row["opening_hours"], row["time_zone"], now),
        occupancy=occupancy_from_row(row["id"], row),
        images=tuple(images),
        deals=tuple(deals),
    )


def _settings(row: dict[str, Any]) -> HiveSettings:
    place = address_from_row(row)
    names = [name for name in HiveSettings.__slots__ if name != "address"]
    return HiveSettings(**{name: row[name] for name in names}, address=place)


def _grouped(values: Sequence[Any]) -> dict[int, list[Any]]:
    by_hive: dict[int, list[Any]] = {}
    for each in values:
        by_hive.setdefault(each.hive_id, []).append(each)
    return by_hive


_FAVOUR: Final = """
    INSERT INTO user_hive AS held (user_id, hive_id, favourite, favourite_at)
    VALUES (%(user)s, %(hive)s, %(on)s, CASE WHEN %(on)s THEN %(now)s::timestamptz END)
    ON CONFLICT (user_id, hive_id) DO UPDATE SET favourite = excluded.favourite,
        favourite_at = CASE WHEN excluded.favourite
            THEN coalesce(held.favourite_at, excluded.favourite_at) END
"""
_VISIT: Final = """
    INSERT INTO user_hive AS held (user_id, hive_id, last_visited_at, visit_count)
    VALUES (%(user)s, %(hive)s, %(now)s, 1)
    ON CONFLICT (user_id, hive_id) DO UPDATE SET
        last_visited_at = excluded.last_visited_at, visit_count = held.visit_count + 1
"""
_NETWORK: Final = "id, hive_id, kind, ssid, secret_ref, notes, updated_at"


class FavouriteRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def favour(self, user: int, hive: int, on: bool, now: datetime) -> None:
        given = {"user": user, "hive": hive, "on": on, "now": now}
        await self._connection.execute(_FAVOUR, given)

    async def visit(self, user: int, hive: int, now: datetime) -> None:
        await self._connection.execute(_VISIT, {"user": user, "hive": hive, "now": now})

    async def favourites(self, user: int) -> list[int]:
        statement = """
            SELECT hive_id FROM user_hive WHERE user_id = %s AND favourite
            ORDER BY favourite_at DESC, hive_id LIMIT 500
        """
        found = await self._connection.execute(statement, (user,))
        return [row["hive_id"] async for row in found]

    async def recent(self, user: int, limit: int) -> list[int]:
        statement = """
            SELECT hive_id FROM user_hive WHERE user_id = %s AND last_visited_at IS NOT NULL
            ORDER BY last_visited_at DESC, hive_id LIMIT %s
        """
        found = await self._connection.execute(statement, (user, limit))
        return [row["hive_id"] async for row in found]


class NetworkRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_hive(self, hive: int) -> list[HiveNetwork]:
        statement = f"SELECT {_NETWORK} FROM hive_network WHERE hive_id = %s ORDER BY id"
        return await fetch_all(self._connection, HiveNetwork, statement, (hive,))

    async def add(self, hive: int, values: Mapping[str, Any]) -> HiveNetwork:
        number = await insert_row(self._connection, "hive_network", {**values, "hive_id": hive})
        statement = f"SELECT {_NETWORK} FROM hive_network WHERE id = %s"
        made = await (await self._connection.execute(statement, (number,))).fetchone()
        assert made is not None
        return HiveNetwork(**made)

    async def remove(self, hive: int, number: int) -> bool:
        statement = "DELETE FROM hive_network WHERE id = %s AND hive_id = %s"
        return (await self._connection.execute(statement, (number, hive))).rowcount == 1
