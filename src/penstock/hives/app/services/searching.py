"""The search for hives in memory, over what is cached: as the database does it, key for key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.geography import Point
from penstock.hives.app.domain.hives import HiveQuery, HiveSummary, Sort

#: After all that can be sorted.
_LAST: Final = 1e9

Key = tuple[str | float, int]


def search(hives: Iterable[HiveSummary], query: HiveQuery) -> Listed[HiveSummary]:
    """A page of those that match. Whether they are open is as old as they are."""
    kind = str if query.sort is Sort.NAME else float
    after = unpack(query.cursor, kind, int)
    found = []
    for hive in hives:
        distance = _distance(query.near, hive)
        if _matches(hive, query, distance):
            key = _key(hive, query.sort, distance)
            if after is None or key > (after[0], after[1]):
                rounded = None if distance is None else round(distance, 3)
                found.append((key, replace(hive, distance_km=rounded)))
    found.sort(key=lambda pair: pair[0])
    page = listed(found[: query.limit + 1], query.limit, lambda pair: pair[0])
    return Listed([hive for _, hive in page.items], page.next)


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


def _key(hive: HiveSummary, sort: Sort, distance: float | None) -> Key:
    if sort is Sort.NAME:
        return hive.name.lower(), hive.id
    if sort is Sort.DISTANCE:
        return _LAST if distance is None else distance, hive.id
    percent = hive.occupancy.percent if hive.occupancy else None
    return _LAST if percent is None else percent, hive.id


def _distance(near: Point | None, hive: HiveSummary) -> float | None:
    if near is None or hive.address is None or hive.address.point is None:
        return None
    return near.distance_km(hive.address.point)
