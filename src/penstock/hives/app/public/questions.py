"""What the public asks for, as it is spelled in paths and queries: one table.

The same names, limits and meanings as the API has for those who are answered from the database;
a test asks both and compares. What cannot be read raises the API's own errors.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl

from penstock.core.units import parse_count
from penstock.hives.app.domain.analytics import Interest, Recent
from penstock.hives.app.domain.errors import Fault, Invalid
from penstock.hives.app.domain.geography import Point
from penstock.hives.app.domain.hives import HiveQuery, Sort

LONGEST_NAME: Final = 100
MOST: Final = 100
_FURTHEST_KM: Final = 20_100.0
_A_YEAR: Final = 8784.0

Values = dict[str, str]


def values(query: str) -> Values:
    """Names and values; of a name that is given twice, the last."""
    return dict(parse_qsl(query, keep_blank_values=True))


def hive_query(given: Values) -> HiveQuery:
    """Of a list of hives."""
    read: dict[str, Callable[[str], Any]] = {
        "name": _text,
        "type": _text,
        "zip": _text,
        "near": Point.parse,
        "within_km": _distance,
        "open_now": _flag,
        "sort": _sort,
        "limit": lambda text: limit(text),
        "cursor": _cursor,
    }
    found = {name: read[name](value) for name, value in given.items() if name in read}
    found.setdefault("sort", Sort.DISTANCE if "near" in found else Sort.NAME)
    query = HiveQuery(**found)
    if query.near is None and (query.sort is Sort.DISTANCE or query.within_km is not None):
        raise Invalid("distance from where?", [Fault("near", "is needed for distances")])
    return query


def limit(text: str, most: int = MOST) -> int:
    number = parse_count(text, most)
    if not number:
        raise Invalid("no such limit", [Fault("limit", f"is a number from 1 to {most}")])
    return number


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Invalid("no such day", [Fault("day", "is a date, 2026-11-15")]) from None


def recent(text: str) -> Recent:
    try:
        return Recent(int(text))
    except ValueError:
        allowed = ", ".join(str(each.value) for each in Recent)
        raise Invalid("no such window", [Fault("window_days", f"is one of {allowed}")]) from None


def interest(text: str) -> Interest:
    try:
        return Interest(text)
    except ValueError:
        allowed = ", ".join(Interest)
        raise Invalid("no such interest", [Fault("by", f"is one of {allowed}")]) from None


def hours_ahead(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 < hours <= _A_YEAR:
        raise Invalid("no such time", [Fault("expiring_within_h", "is a number of hours")])
    return now + timedelta(hours=hours)


def number(text: str) -> int | None:
    """A number as paths spell it; none, if it is not one."""
    return parse_count(text)


def _text(text: str) -> str:
    if not 0 < len(text) <= LONGEST_NAME or "\0" in text:
        raise Invalid("no such text", [Fault("name", f"has 1 to {LONGEST_NAME} characters")])
    return text


def _cursor(text: str) -> str:
    if len(text) > 400:
        raise Invalid("no such page", [Fault("cursor", "is not one that a page has given")])
    return text


def _distance(text: str) -> float:
    try:
        km = float(text)
    except ValueError:
        km = -1.0
    if not 0 < km <= _FURTHEST_KM:
        raise Invalid("no such distance", [Fault("within_km", "is a number of kilometres")])
    return km


def _flag(text: str) -> bool:
    match text.lower():
        case "true" | "1" | "yes" | "on":
            return True
        case "false" | "0" | "no" | "off":
            return False
    raise Invalid("neither yes nor no", [Fault("open_now", "is true or false")])


def _sort(text: str) -> Sort:
    try:
        return Sort(text)
    except ValueError:
        allowed = ", ".join(Sort)
        raise Invalid("no such order", [Fault("sort", f"is one of {allowed}")]) from None
