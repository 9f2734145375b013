"""When a person may be disturbed: cool-down, quiet hours, so many a day.

Some news keep, such as a deal: they are as good in the morning, so in quiet hours their push
waits, and whatever is held back from devices still lies in the inbox. How full a place is does not
keep: in quiet hours there is no push, and within the cool-down it is the same news again and told
nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

#: Pushes to one person in one day of theirs.
DAILY_CAP: Final = 20


class Verdict(StrEnum):
    TELL = "tell"
    COOLING = "cooling"  #: told a moment ago
    QUIET = "quiet"  #: not at this hour
    CAPPED = "capped"  #: enough for today


@dataclass(frozen=True, slots=True)
class Habits:
    """What a definition and its owner say about being disturbed."""

    zone: str = "UTC"
    cooldown: float = 0.0  #: seconds
    quiet: tuple[time, time] | None = None
    push: bool = True
    last_told: datetime | None = None
    told_today: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    inbox: bool
    push_at: datetime | None = None  #: None: not to devices


def decide(habits: Habits, now: datetime, *, keeps: bool, cap: int = DAILY_CAP) -> Decision:
    """Whether, and when. What keeps is as good in the morning."""
    if habits.last_told is not None:
        again = habits.last_told + timedelta(seconds=habits.cooldown)
        if now < again:
            return Decision(Verdict.COOLING, keeps)
    if not habits.push:
        return Decision(Verdict.TELL, True)
    if habits.told_today >= cap:
        return Decision(Verdict.CAPPED, True)
    end = quiet_until(habits, now)
    if end is not None:
        return Decision(Verdict.QUIET, True, end if keeps else None)
    return Decision(Verdict.TELL, True, now)


def quiet_until(habits: Habits, now: datetime) -> datetime | None:
    """The end of the quiet hours it is in; None, if it is in none."""
    if habits.quiet is None:
        return None
    begins, ends = habits.quiet
    zone = ZoneInfo(habits.zone)
    local = now.astimezone(zone)
    clock = local.time()
    if begins <= ends:
        inside = begins <= clock < ends
        day = local.date()
    else:  # over midnight
        inside = clock >= begins or clock < ends
        day = local.date() + timedelta(days=1 if clock >= begins else 0)
    if not inside:
        return None
    return datetime.combine(day, ends, zone).astimezone(UTC)


def day_began(zone: str, now: datetime) -> datetime:
    """The last midnight by somebody's own clock."""
    local = now.astimezone(ZoneInfo(zone))
    return datetime.combine(local.date(), time(), local.tzinfo).astimezone(UTC)
