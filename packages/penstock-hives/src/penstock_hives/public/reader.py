"""Answers to the public's questions, out of the window: which path is answered with what.

Both ways in end here: the fast path, for callers that show nothing, and the API, for those who have
signed in and do not pay (`api/responses.py`). Shapes are the API's own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from penstock.core.errors import NotFound, PenstockError
from penstock.core.units import parse_count
from penstock_hives.analytics.models import Popularity, PopularityDays, PopularityMeasure
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.api.responses import PublicResponse
from penstock_hives.deals.models import Deal
from penstock_hives.errors import FieldError, InvalidRequest
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.places.models import (
    BoundingBox,
    GeoPoint,
    HiveDetail,
    HiveQuery,
    HiveSort,
    Navigation,
)
from penstock_hives.places.service import search_hives
from penstock_hives.public.view import CachedPage, PublicView
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send

#: Longer questions are answered, and not remembered.
_LONGEST_KEPT: Final = 300
ROOT: Final = "/v1/"
_MOST_ON_A_MAP: Final = 500


class PublicReader:
    """Of one window."""

    def __init__(self, window: PublicView) -> None:
        self._window = window
        self._lists: dict[str, Callable[[Values], Any]] = {
            "hives": self._hives,
            "map": self._map,
            "hive-types": lambda given: list(window.edition.snapshot.types),
            "plans": lambda given: list(window.edition.plans),
            "popular": self._popular,
            "deals": self._deals,
            "deals/daily": lambda given: self._deals({**given, "kind": "daily"}),
        }
        self._of_hive: dict[str, Callable[[int, Values], Any]] = {
            "": lambda hive, given: window.detail(hive),
            "occupancy": lambda hive, given: window.occupancy(hive),
            "typical-week": lambda hive, given: window.week(hive),
            "forecast": lambda hive, given: window.forecast(hive, _day(given)),
            "images": lambda hive, given: list(window.detail(hive).images),
            "deals": lambda hive, given: self._deals({**given, "hive_id": str(hive)}),
            "navigation": self._navigation,
        }

    def find(self, path: str, query: str) -> CachedPage | None:
        """The page that answers; none, if the path is none of ours.

        Raises `NothingYet`, `NotFound`, and `Invalid` for a question that cannot be read.
        """
        key = f"{path}?{query}" if query else path
        return self._window.kept(key) or self._make(path, query, key)

    async def answer(self, path: str, query: str) -> PublicResponse | None:
        """For the API."""
        page = self.find(path, query)
        if page is None:
            return None
        headers = [(name.decode(), value.decode()) for name, value in page.headers]
        return PublicResponse(page.status, headers, page.body)

    def _make(self, path: str, query: str, key: str) -> CachedPage | None:
        located = self._located(path)
        if located is None:
            return None
        answer, hive = located
        given = parse_query(query)
        if len(key) > _LONGEST_KEPT:
            return self._window.uncached_page(lambda: answer(given))
        return self._window.page(key, lambda: answer(given), hive)

    def _located(self, path: str) -> tuple[Callable[[Values], Any], int | None] | None:
        """What answers a path, and the hive it is about."""
        if not path.startswith(ROOT):
            return None
        name = path[len(ROOT) :]
        if name in self._lists:
            return self._lists[name], None
        kind, _, rest = name.partition("/")
        text, _, about = rest.partition("/")
        number = parse_number(text)
        if number is None:
            return None
        if kind == "hives" and about in self._of_hive:
            return partial(self._of_hive[about], number), number
        if kind == "deals" and not about:
            return partial(self._deal, number), None
        return None

    def _hives(self, given: Values) -> object:
        return search_hives(self._window.summaries(), parse_hive_query(given))

    def _map(self, given: Values) -> object:
        box = BoundingBox.parse(given.get("bbox", ""))
        most = parse_limit(given.get("limit", "200"), _MOST_ON_A_MAP)
        shown = [
            {
                "type": "Feature",
                "id": hive.id,
                "geometry": {"type": "Point", "coordinates": [point.lon, point.lat]},
                "properties": hive,
            }
            for hive in sorted(self._window.summaries(), key=lambda each: each.name.lower())
            if hive.address and (point := hive.address.point) and box.holds(point)
        ]
        return {"type": "FeatureCollection", "features": shown[:most]}

    def _navigation(self, hive: int, given: Values) -> Navigation:
        start = GeoPoint.parse(given["from"], "from") if "from" in given else None
        return navigation(self._window.detail(hive), start)

    def _deals(self, given: Values) -> CursorPage[Deal]:
        """The first to end first."""
        most = parse_limit(given.get("limit", "50"))
        hive, kind = given.get("hive_id"), given.get("kind")
        after = decode_cursor(given.get("cursor"), str, int)
        until = parse_hours_ahead(given.get("expiring_within_h"), self._window.now)
        found = [
            deal
            for deal in self._window.deals()
            if (kind is None or deal.kind == kind)
            and (hive is None or str(deal.hive_id) == hive)
            and (until is None or deal.expires_at <= until)
            and (after is None or _end(deal) > tuple(after))
        ]
        return paginate(sorted(found, key=_end)[: most + 1], most, _end)

    def _popular(self, given: Values) -> list[Popularity]:
        days = parse_popularity_days(given.get("window_days", "7"))
        most = parse_limit(given.get("limit", "20"))
        by = parse_popularity_measure(given.get("by", PopularityMeasure.ALL))
        found = [each for each in self._window.edition.popular if each.window_days == days]
        return sorted(found, key=by.sort_key)[:most]

    def _deal(self, number: int, given: Values) -> Deal:
        for deal in self._window.deals():
            if deal.id == number:
                return deal
        raise NotFound(f"there is no deal {number} at the moment")


def _end(deal: Deal) -> tuple[str, int]:
    return deal.expires_at.isoformat(), deal.id


def _day(given: Values) -> date | None:
    return parse_day(given["day"]) if "day" in given else None


def navigation(detail: HiveDetail, start: GeoPoint | None) -> Navigation:
    goal = None if detail.address is None else detail.address.point
    if detail.address is None or goal is None:
        raise NotFound(f"nobody has said where hive {detail.id} is")
    return Navigation(
        detail.id,
        detail.name,
        detail.address,
        f"geo:{goal.lat:.6f},{goal.lon:.6f}",
        None if start is None else round(start.distance_km(goal), 3),
        None if start is None else round(start.bearing(goal), 1),
    )


# What the public asks for, as it is spelled in paths and queries: one table.
#
# The same names, limits and meanings as the API has for those who are answered from the database;
# a test asks both and compares. What cannot be read raises the API's own errors.

MAX_NAME_LENGTH: Final = 100
MAX_LIMIT: Final = 100
_FURTHEST_KM: Final = 20_100.0
_A_YEAR: Final = 8784.0

Values = dict[str, str]


def parse_query(query: str) -> Values:
    """Names and values; of a name that is given twice, the last."""
    return dict(parse_qsl(query, keep_blank_values=True))


def parse_hive_query(given: Values) -> HiveQuery:
    """Of a list of hives."""
    read: dict[str, Callable[[str], Any]] = {
        "name": _text,
        "type": _text,
        "zip": _text,
        "near": GeoPoint.parse,
        "within_km": _distance,
        "open_now": _flag,
        "sort": _sort,
        "limit": lambda text: parse_limit(text),
        "cursor": _cursor,
    }
    found = {name: read[name](value) for name, value in given.items() if name in read}
    found.setdefault("sort", HiveSort.DISTANCE if "near" in found else HiveSort.NAME)
    query = HiveQuery(**found)
    if query.near is None and (query.sort is HiveSort.DISTANCE or query.within_km is not None):
        raise InvalidRequest(
            "distance from where?", [FieldError("near", "is needed for distances")]
        )
    return query


def parse_limit(text: str, most: int = MAX_LIMIT) -> int:
    number = parse_count(text, most)
    if not number:
        raise InvalidRequest(
            "no such limit", [FieldError("limit", f"is a number from 1 to {most}")]
        )
    return number


def parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidRequest("no such day", [FieldError("day", "is a date, 2026-11-15")]) from None


def parse_popularity_days(text: str) -> PopularityDays:
    try:
        return PopularityDays(int(text))
    except ValueError:
        allowed = ", ".join(str(each.value) for each in PopularityDays)
        raise InvalidRequest(
            "no such window", [FieldError("window_days", f"is one of {allowed}")]
        ) from None


def parse_popularity_measure(text: str) -> PopularityMeasure:
    try:
        return PopularityMeasure(text)
    except ValueError:
        allowed = ", ".join(PopularityMeasure)
        raise InvalidRequest(
            "no such interest", [FieldError("by", f"is one of {allowed}")]
        ) from None


def parse_hours_ahead(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 < hours <= _A_YEAR:
        raise InvalidRequest(
            "no such time", [FieldError("expiring_within_h", "is a number of hours")]
        )
    return now + timedelta(hours=hours)


def parse_number(text: str) -> int | None:
    """A number as paths spell it; none, if it is not one."""
    return parse_count(text)


def _text(text: str) -> str:
    if not 0 < len(text) <= MAX_NAME_LENGTH or "\0" in text:
        raise InvalidRequest(
            "no such text", [FieldError("name", f"has 1 to {MAX_NAME_LENGTH} characters")]
        )
    return text


def _cursor(text: str) -> str:
    if len(text) > 400:
        raise InvalidRequest(
            "no such page", [FieldError("cursor", "is not one that a page has given")]
        )
    return text


def _distance(text: str) -> float:
    try:
        km = float(text)
    except ValueError:
        km = -1.0
    if not 0 < km <= _FURTHEST_KM:
        raise InvalidRequest(
            "no such distance", [FieldError("within_km", "is a number of kilometres")]
        )
    return km


def _flag(text: str) -> bool:
    match text.lower():
        case "true" | "1" | "yes" | "on":
            return True
        case "false" | "0" | "no" | "off":
            return False
    raise InvalidRequest("neither yes nor no", [FieldError("open_now", "is true or false")])


def _sort(text: str) -> HiveSort:
    try:
        return HiveSort(text)
    except ValueError:
        allowed = ", ".join(HiveSort)
        raise InvalidRequest(
            "no such order", [FieldError("sort", f"is one of {allowed}")]
        ) from None


# The fast path: reads by callers that show nothing are answered here, before any framework.
#
# A read of ours without a token or a key is answered from the window, or refused: it never goes on
# to what could ask the database. Everything else goes on.


def public_endpoint(answers: PublicReader, others: AsgiApplication) -> AsgiApplication:
    find = answers.find

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await others(scope, receive, send)
            return
        known: bytes | None = None
        zipped = False
        for name, value in scope["headers"]:
            if name in (b"authorization", b"x-api-key"):
                await others(scope, receive, send)
                return
            if name == b"if-none-match":
                known = value
            elif name == b"accept-encoding":
                zipped = b"gzip" in value
        try:
            page = find(scope["path"], scope["query_string"].decode("latin-1"))
        except PenstockError as error:
            await PROBLEMS.from_error(error)(scope, receive, send)
            return
        if page is None:
            await others(scope, receive, send)
        else:
            await page.send(send, known, zipped)

    return application
