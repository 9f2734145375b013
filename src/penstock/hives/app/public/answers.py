"""Answers to the public's questions, out of the window: which path is answered with what.

Both ways in end here: the fast path, for callers that show nothing, and the API, for those who have
signed in and do not pay (`api/public.py`). Shapes are the API's own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, Final

from penstock.core.errors import NotFound
from penstock.hives.app.api.public import PublicAnswer
from penstock.hives.app.domain.analytics import Interest, Popularity
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.deals import Deal
from penstock.hives.app.domain.geography import Box, Point
from penstock.hives.app.domain.hives import HiveDetail, Navigation
from penstock.hives.app.public import questions
from penstock.hives.app.public.pages import Page
from penstock.hives.app.public.questions import Values
from penstock.hives.app.public.window import Window
from penstock.hives.app.services.searching import search

#: Longer questions are answered, and not remembered.
_LONGEST_KEPT: Final = 300
ROOT: Final = "/v1/"
_MOST_ON_A_MAP: Final = 500


class Answers:
    """Of one window."""

    def __init__(self, window: Window) -> None:
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

    def find(self, path: str, query: str) -> Page | None:
        """The page that answers; none, if the path is none of ours.

        Raises `NothingYet`, `NotFound`, and `Invalid` for a question that cannot be read.
        """
        key = f"{path}?{query}" if query else path
        return self._window.kept(key) or self._make(path, query, key)

    async def answer(self, path: str, query: str) -> PublicAnswer | None:
        """For the API."""
        page = self.find(path, query)
        if page is None:
            return None
        headers = [(name.decode(), value.decode()) for name, value in page.headers]
        return PublicAnswer(page.status, headers, page.body)

    def _make(self, path: str, query: str, key: str) -> Page | None:
        located = self._located(path)
        if located is None:
            return None
        answer, hive = located
        given = questions.values(query)
        if len(key) > _LONGEST_KEPT:
            return self._window.unkept(lambda: answer(given))
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
        number = questions.number(text)
        if number is None:
            return None
        if kind == "hives" and about in self._of_hive:
            return partial(self._of_hive[about], number), number
        if kind == "deals" and not about:
            return partial(self._deal, number), None
        return None

    def _hives(self, given: Values) -> object:
        return search(self._window.summaries(), questions.hive_query(given))

    def _map(self, given: Values) -> object:
        box = Box.parse(given.get("bbox", ""))
        most = questions.limit(given.get("limit", "200"), _MOST_ON_A_MAP)
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
        start = Point.parse(given["from"], "from") if "from" in given else None
        return navigation(self._window.detail(hive), start)

    def _deals(self, given: Values) -> Listed[Deal]:
        """The first to end first."""
        most = questions.limit(given.get("limit", "50"))
        hive, kind = given.get("hive_id"), given.get("kind")
        after = unpack(given.get("cursor"), str, int)
        until = questions.hours_ahead(given.get("expiring_within_h"), self._window.now)
        found = [
            deal
            for deal in self._window.deals()
            if (kind is None or deal.kind == kind)
            and (hive is None or str(deal.hive_id) == hive)
            and (until is None or deal.expires_at <= until)
            and (after is None or _end(deal) > tuple(after))
        ]
        return listed(sorted(found, key=_end)[: most + 1], most, _end)

    def _popular(self, given: Values) -> list[Popularity]:
        days = questions.recent(given.get("window_days", "7"))
        most = questions.limit(given.get("limit", "20"))
        by = questions.interest(given.get("by", Interest.ALL))
        found = [each for each in self._window.edition.popular if each.window_days == days]
        return sorted(found, key=by.place)[:most]

    def _deal(self, number: int, given: Values) -> Deal:
        for deal in self._window.deals():
            if deal.id == number:
                return deal
        raise NotFound(f"there is no deal {number} at the moment")


def _end(deal: Deal) -> tuple[str, int]:
    return deal.expires_at.isoformat(), deal.id


def _day(given: Values) -> date | None:
    return questions.day(given["day"]) if "day" in given else None


def navigation(detail: HiveDetail, start: Point | None) -> Navigation:
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
