"""Answers public reads from the cached view: which path returns what.

Anonymous requests arrive by `public_endpoint`, before any framework; signed-in callers without live
access by `api/responses.py`. Queries and schemas are those of the API.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from penstock.core.errors import NotFound, PenstockError
from penstock.core.units import parse_count
from penstock_hives.analytics.models import Popularity, PopularQuery
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.deals.models import Deal, DealKind, DealQuery
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.places.models import (
    ForecastQuery,
    HiveQuery,
    HiveSummary,
    MapQuery,
    NavigationQuery,
    map_features,
    navigation_to,
)
from penstock_hives.places.search import hives_within, search_hives
from penstock_hives.public.view import CachedPage, PublicView
from penstock_hives.queries import parse_query
from penstock_hives.server.asgi import AsgiApplication, Receive, Scope, Send

#: Responses to longer URLs are not cached.
_MAX_KEY_LENGTH: Final = 300
ROOT: Final = "/v1/"

Values = dict[str, str]


class PublicReader:
    def __init__(self, view: PublicView) -> None:
        self._view = view
        self._lists: dict[str, Callable[[Values], Any]] = {
            "hives": lambda given: search_hives(view.summaries(), parse_query(HiveQuery, given)),
            "map": self._map,
            "hive-types": lambda given: list(view.snapshot.hives.types),
            "plans": lambda given: list(view.snapshot.plans),
            "popular": self._popular,
            "deals": self._deals,
            "deals/daily": lambda given: self._deals({**given, "kind": DealKind.DAILY}),
        }
        self._of_hive: dict[str, Callable[[int, Values], Any]] = {
            "": lambda hive, given: view.detail(hive),
            "occupancy": lambda hive, given: view.occupancy(hive),
            "typical-week": lambda hive, given: view.week(hive),
            "today": lambda hive, given: view.today(hive),
            "forecast": lambda hive, given: view.forecast(
                hive, parse_query(ForecastQuery, given).day
            ),
            "images": lambda hive, given: list(view.detail(hive).images),
            "deals": lambda hive, given: self._deals(given, hive),
            "navigation": lambda hive, given: navigation_to(
                view.detail(hive), parse_query(NavigationQuery, given).start
            ),
        }

    def summaries(self) -> list[HiveSummary]:
        """All public hives; raises `NotReady`."""
        return self._view.summaries()

    def cached(self, target: str) -> CachedPage | None:
        """The cached response for path and query."""
        return self._view.cached_page(target)

    def find(self, path: str, query: str) -> CachedPage | None:
        """The response; None if the path is not a public read.

        Raises `NotReady` without a snapshot, `NotFound`, and `InvalidRequest` for the query.
        """
        key = f"{path}?{query}" if query else path
        return self._view.cached_page(key) or self._render(path, query, key)

    def _render(self, path: str, query: str, key: str) -> CachedPage | None:
        located = self._locate(path)
        if located is None:
            return None
        read, hive = located
        given = dict(parse_qsl(query, keep_blank_values=True))
        if len(key) > _MAX_KEY_LENGTH:
            return self._view.uncached_page(lambda: read(given))
        return self._view.page(key, lambda: read(given), hive)

    def _locate(self, path: str) -> tuple[Callable[[Values], Any], int | None] | None:
        """The function that reads a path, and the hive it is about."""
        if not path.startswith(ROOT):
            return None
        name = path[len(ROOT) :]
        if name in self._lists:
            return self._lists[name], None
        kind, _, rest = name.partition("/")
        text, _, about = rest.partition("/")
        number = parse_count(text)
        if number is None:
            return None
        if kind == "hives" and about in self._of_hive:
            return partial(self._of_hive[about], number), number
        if kind == "deals" and not about:
            return partial(self._deal, number), None
        return None

    def _map(self, given: Values) -> object:
        query = parse_query(MapQuery, given)
        return map_features(hives_within(self._view.summaries(), query.bbox, query.limit))

    def _deals(self, given: Values, hive: int | None = None) -> CursorPage[Deal]:
        """Sorted by their end."""
        query = parse_query(DealQuery, given)
        after = decode_cursor(query.cursor, str, int)
        until = None
        if query.expiring_within_h is not None:
            until = self._view.now + timedelta(hours=query.expiring_within_h)
        found = [
            deal
            for deal in self._view.deals()
            if (query.kind is None or deal.kind == query.kind)
            and (hive is None or deal.hive_id == hive)
            and (until is None or deal.expires_at <= until)
            and (after is None or _end(deal) > tuple(after))
        ]
        return paginate(sorted(found, key=_end)[: query.limit + 1], query.limit, _end)

    def _popular(self, given: Values) -> list[Popularity]:
        query = parse_query(PopularQuery, given)
        popular = self._view.snapshot.popular
        found = [each for each in popular if each.window_days == query.window_days]
        return sorted(found, key=query.by.sort_key)[: query.limit]

    def _deal(self, number: int, given: Values) -> Deal:
        for deal in self._view.deals():
            if deal.id == number:
                return deal
        raise NotFound(f"deal {number} not found")


def _end(deal: Deal) -> tuple[str, int]:
    return deal.expires_at.isoformat(), deal.id


def public_endpoint(reader: PublicReader, fallback: AsgiApplication) -> AsgiApplication:
    """Answers public reads without credentials; passes other requests on to the fallback."""
    find = reader.find

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await fallback(scope, receive, send)
            return
        known: bytes | None = None
        gzipped = False
        for name, value in scope["headers"]:
            if name in (b"authorization", b"x-api-key"):
                await fallback(scope, receive, send)
                return
            if name == b"if-none-match":
                known = value
            elif name == b"accept-encoding":
                gzipped = b"gzip" in value
        try:
            page = find(scope["path"], scope["query_string"].decode("latin-1"))
        except PenstockError as error:
            await PROBLEMS.from_error(error)(scope, receive, send)
            return
        if page is None:
            await fallback(scope, receive, send)
        else:
            await page.send(send, known, gzipped)

    return application
