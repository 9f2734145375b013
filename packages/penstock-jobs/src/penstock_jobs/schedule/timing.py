"""When a schedule is due: at fixed intervals, or by a cron expression in a time zone.

Cron expressions have five fields: minute, hour, day of month, month, day of week, with `*`, lists,
ranges, steps and English names, or one of `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. If
both days are restricted, one of them has to match, as in cron. A time that a change of the clocks
skips does not occur; one that occurs twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.errors import ConfigurationError

_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Name, least, most, names from the least.
_FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
#: Days to search: the 29th of February on a Monday occurs within 28 years, or 40 around 2100.
_MAX_DAYS: Final = 366 * 41


@dataclass(frozen=True, slots=True)
class IntervalTiming:
    seconds: float

    def after(self, moment: datetime, now: datetime) -> datetime:
        """The next time; missed ones are skipped."""
        late = (now - moment).total_seconds()
        steps = max(int(late // self.seconds), 0) + 1
        return moment + timedelta(seconds=steps * self.seconds)


@dataclass(frozen=True, slots=True)
class CronTiming:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  #: 0 is Sunday
    either_day: bool  #: both days are restricted
    zone: ZoneInfo

    def after(self, moment: datetime, now: datetime) -> datetime:
        """The first time after both."""
        start = max(moment, now).astimezone(self.zone)
        day = start.date()
        for _ in range(_MAX_DAYS):
            if self._is_day(day.day, day.month, day.isoweekday() % 7):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        local = datetime(
                            day.year, day.month, day.day, hour, minute, tzinfo=self.zone
                        )
                        found = local.astimezone(UTC)
                        exists = found.astimezone(self.zone).replace(tzinfo=None)
                        if found > start and exists == local.replace(tzinfo=None):
                            return found
            day += timedelta(days=1)
        raise ConfigurationError("the cron expression never occurs")

    def _is_day(self, day: int, month: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        if self.either_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays


Timing = IntervalTiming | CronTiming


def parse_timing(every: float | None, cron: str | None, zone: str = "UTC") -> Timing:
    if (every is None) == (cron is None):
        raise ConfigurationError("a schedule has either an interval or a cron expression")
    if every is not None:
        if not 1 <= every <= 366 * 86_400:
            raise ConfigurationError(f"an interval of {every:g} seconds: must be 1 s to a year")
        return IntervalTiming(every)
    assert cron is not None
    return parse_cron(cron, zone)


def parse_cron(text: str, zone: str = "UTC") -> CronTiming:
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(f"time zone {zone!r}: unknown; as Europe/Madrid") from error
    words = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS):
        raise ConfigurationError(f"cron {text!r}: must have five fields, or a name as @daily")
    fields = [_field(word, *field, text) for word, field in zip(words, _FIELDS, strict=True)]
    weekdays = frozenset(day % 7 for day in fields[4])
    either = not (words[2].startswith("*") or words[4].startswith("*"))
    timing = CronTiming(fields[0], fields[1], fields[2], fields[3], weekdays, either, place)
    now = datetime.now(UTC)
    timing.after(now, now)  # refuses one that never occurs
    return timing


def _field(
    word: str, name: str, least: int, most: int, names: tuple[str, ...], text: str
) -> frozenset[int]:
    def number(part: str) -> int:
        if part.lower() in names:
            return names.index(part.lower()) + least
        if not part.isdecimal() or not least <= int(part) <= most:
            raise ConfigurationError(f"cron {text!r}: {name} {part!r}: must be {least} to {most}")
        return int(part)

    found: set[int] = set()
    for each in word.split(","):
        span, _, step = each.partition("/")
        if step and not (step.isdecimal() and int(step)):
            raise ConfigurationError(f"cron {text!r}: {name}: the step {step!r} is not a number")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = least, most
        elif dash:
            low, high = number(first), number(last)
        else:
            low = number(first)
            high = most if step else low
        if low > high:
            raise ConfigurationError(f"cron {text!r}: {name}: {span} runs backwards")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)
