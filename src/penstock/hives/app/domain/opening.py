"""Opening hours: by weekday, spans of local time; one that ends no later than it begins lasts into
the next day. `hive_open` in the database says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from penstock.hives.app.domain.errors import Fault, Invalid

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Hours = Mapping[str, Sequence[Sequence[str]]]

_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")
_DAY: Final = timedelta(days=1)
#: Spans of one day: nobody opens more often.
_MOST: Final = 6


def checked(hours: Hours) -> dict[str, list[list[str]]]:
    """The same, if it can be meant."""
    faults = []
    for day, spans in hours.items():
        if day not in WEEKDAYS:
            faults.append(Fault(f"opening_hours.{day}", f"is none of {', '.join(WEEKDAYS)}"))
        elif len(spans) > _MOST or not all(_is_span(span) for span in spans):
            faults.append(Fault(f"opening_hours.{day}", 'is a list of ["09:00", "17:30"]'))
    if faults:
        raise Invalid("no such opening hours", faults)
    return {day: [list(span) for span in hours[day]] for day in WEEKDAYS if day in hours}


def is_open(hours: Hours, zone: str, at: datetime) -> bool:
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return any(opens <= local < closes for opens, closes in _around(hours, local.date()))


def next_change(hours: Hours, zone: str, at: datetime) -> datetime | None:
    """When it opens next, or closes if it is open; within the week that follows."""
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    days = [local.date() + n * _DAY for n in range(-1, 8)]
    spans = sorted(span for day in days for span in _of(hours, day))
    until = local
    for opens, closes in spans:  # spans that follow on one another are one
        if opens <= until < closes:
            until = closes
    if until > local:
        return _moment(until, zone)
    return next((_moment(opens, zone) for opens, _ in spans if opens > local), None)


def _around(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    yield from _of(hours, day - _DAY)
    yield from _of(hours, day)


def _of(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    for opens, closes in hours.get(WEEKDAYS[day.weekday()], ()):
        begin, end = _at(day, opens), _at(day, closes)
        yield begin, end if end > begin else end + _DAY


def _at(day: date, clock: str) -> datetime:
    hour, minute = clock.split(":")
    return datetime.combine(day, time()) + timedelta(hours=int(hour), minutes=int(minute))


def _moment(wall: datetime, zone: str) -> datetime:
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def _is_span(span: Sequence[str]) -> bool:
    return len(span) == 2 and all(_CLOCK.fullmatch(clock) for clock in span) and span[0] != "24:00"
