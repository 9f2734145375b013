"""How far a command has come, by the lines it prints.

`percent: 12.5%` and `finish: 2026-05-05T10:10:32+02:00`, or the finish as the program `date` prints
it in English; a date that cannot be read leaves the estimate as it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

_PERCENT: Final = re.compile(r"\s*percent:\s*(\d+(?:\.\d*)?|\.\d+)\s*%")
_FINISH: Final = re.compile(r"\s*finish:\s*(\S.*)")
#: `Mon May  5 10:10:32 CEST 2014`, and `Mon May  5 10:10:32 AM CEST 2014` of later versions.
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (AM|PM))? "
    r"([A-Z]{3,5}|[+-]\d{2,4}) (\d{4})"
)
#: Not the `calendar` module's: those are in the language of the machine.
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
#: Hours east of Greenwich. A name that is not here may mean several zones: no guess is made.
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3,
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "JST": 9, "NZST": 12, "NZDT": 13,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    share: float = 0.0  #: of the work, 0 to 1
    finish: datetime | None = None  #: the estimate

    def after(self, line: str) -> Progress:
        """As the line says, or unchanged if it says nothing of it."""
        if found := _PERCENT.match(line):
            return replace(self, share=min(float(found[1]) / 100, 1.0))
        if found := _FINISH.match(line):
            finish = read_date(found[1].strip())
            return self if finish is None else replace(self, finish=finish)
        return self


def read_date(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _date(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _date(text: str) -> datetime | None:
    found = _DATE.fullmatch(text)
    if found is None or _MONTHS.find(found[1]) % 3:
        return None
    month, day, hour, minute, second, half, zone, year = found.groups()
    east = _ZONES.get(zone)
    if zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:] or 0)
        east_of = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    elif east is not None:
        east_of = timedelta(hours=east)
    else:
        return None
    hour_of_day = int(hour)
    if half:
        hour_of_day = hour_of_day % 12 + (12 if half == "PM" else 0)
    try:
        day_of = datetime(
            int(year), _MONTHS.index(month) // 3 + 1, int(day), tzinfo=timezone(east_of)
        )
        return day_of.replace(hour=hour_of_day, minute=int(minute), second=int(second))
    except ValueError:
        return None
