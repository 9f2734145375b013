"""The search of places, for every caller: in memory, over all that are public.

Anonymous and free callers get what is in memory. For callers with live figures the hives that were
found are read again from the database (`HiveService.search`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.places.models import BoundingBox, GeoPoint, HiveQuery, HiveSort, HiveSummary
from penstock_hives.places.search_text import plain_text, word_patterns

#: The sort key of hives without a value.
_LAST: Final = 1e9

SortKey = tuple[str | float, int]


def search_hives(hives: Iterable[HiveSummary], query: HiveQuery) -> CursorPage[HiveSummary]:
    kind = str if query.order is HiveSort.NAME else float
    after = decode_cursor(query.cursor, kind, int)
    found = []
    for hive in hives:
        distance = _distance(query.near, hive)
        if _matches(hive, query, distance):
            key = _key(hive, query.order, distance)
            if after is None or key > (after[0], after[1]):
                rounded = None if distance is None else round(distance, 3)
                found.append((key, replace(hive, distance_km=rounded)))
    found.sort(key=lambda pair: pair[0])
    page = paginate(found[: query.limit + 1], query.limit, lambda pair: pair[0])
    return CursorPage([hive for _, hive in page.items], page.next)


def hives_within(hives: Iterable[HiveSummary], box: BoundingBox, limit: int) -> list[HiveSummary]:
    """By name."""
    inside = [
        hive
        for hive in hives
        if hive.address and (point := hive.address.point) and box.contains(point)
    ]
    return sorted(inside, key=lambda hive: (hive.name.lower(), hive.id))[:limit]


def _matches(hive: HiveSummary, query: HiveQuery, distance: float | None) -> bool:
    zip_code = hive.address.zip if hive.address else None
    city = hive.address.city if hive.address else None
    name = plain_text(hive.name)
    searched = ""
    if query.q is not None:
        searched = plain_text(" ".join(filter(None, (hive.name, hive.type_name, city, zip_code))))
    return (
        (query.type is None or hive.type == query.type)
        and (
            query.zip is None
            or (zip_code is not None and zip_code.upper().startswith(query.zip.upper()))
        )
        and all(word in name for word in plain_text(query.name or "").split())
        and all(pattern.search(searched) for pattern in word_patterns(query.q or ""))
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
    if not hive.open_now:
        return 2 * _LAST, hive.id
    percent = hive.occupancy.percent if hive.occupancy else None
    return _LAST if percent is None else percent, hive.id


def _distance(near: GeoPoint | None, hive: HiveSummary) -> float | None:
    if near is None or hive.address is None or hive.address.point is None:
        return None
    return near.distance_km(hive.address.point)
