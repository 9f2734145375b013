"""Times as the language writes them: `Thu Jun 19 17:14:58 GMT 2008`.

A zone is an offset (`GMT+02:00`, `+0200`, `Z`) or one of the few abbreviations that mean one thing
in most of the world. Times are printed in GMT, to the second.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from penstock.content.errors import LanguageError, expected

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_EAST: Final = {
    0: "GMT UTC UT Z WET",
    1: "BST WEST CET",
    2: "CEST EET",
    3: "EEST MSK",
    9: "JST",
    -4: "EDT",
    -5: "EST CDT",
    -6: "CST MDT",
    -7: "MST PDT",
    -8: "PST",
}
#: The first and the last second there is a word for, since 1970: of the years 1 and 9999.
EARLIEST: Final = -62_135_596_800
LATEST: Final = 253_402_300_799
#: Hours east of Greenwich.
ZONES: Final = {name: hours for hours, names in _EAST.items() for name in names.split()}

_TIME: Final = re.compile(
    r"([A-Z][a-z]{2}) +([A-Z][a-z]{2}) +(\d{1,2}) +(\d{2}):(\d{2}):(\d{2}) +"
    r"(?:([A-Z]+)|(?:GMT)?([+-])(\d{2}):?(\d{2})) +(\d{4})",
    re.ASCII,
)


def parse_time(text: str, position: int = 0, end: int | None = None) -> datetime:
    """Read text[position:end], of which errors count positions from the start of the text."""
    match = _TIME.fullmatch(text, position, len(text) if end is None else end)
    if match is None:
        raise expected(text, position, "a time such as Thu Jun 19 17:14:58 GMT 2008")
    day, month, date, hour, minute, second, name, sign, hours, minutes, year = match.groups()
    if name is not None and name not in ZONES:
        raise LanguageError(text, match.start(7), f"unknown time zone {name}; write GMT±hh:mm")
    if month not in MONTHS:
        raise LanguageError(text, match.start(2), f"there is no month {month}")
    east = timedelta(hours=ZONES[name]) if name else timedelta(hours=int(hours))
    east += timedelta(minutes=int(minutes or 0))
    try:
        time = datetime(
            *(int(year), MONTHS.index(month) + 1, int(date)),
            *(int(hour), int(minute), int(second)),
            tzinfo=timezone(-east if sign == "-" else east),
        )
        time_gmt = time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise LanguageError(text, position, f"no such time: {error}") from None
    if DAYS[time.weekday()] != day:
        problem = f"that day was a {DAYS[time.weekday()]}, not a {day}"
        raise LanguageError(text, position, problem)
    return time_gmt


def print_time(time: datetime) -> str:
    gmt = time.astimezone(UTC)
    clock = f"{gmt:%H:%M:%S}"
    return f"{DAYS[gmt.weekday()]} {MONTHS[gmt.month - 1]} {gmt.day:02} {clock} GMT {gmt.year:04}"
