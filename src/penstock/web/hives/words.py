"""How figures are said: levels, relations, moments, changes."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from penstock.hives.app.domain.analytics import PeerComparison

#: Level → its pill's look. A hive nobody hears of has none.
LEVELS: Final = {"quiet": "good", "moderate": "busy", "busy": "warn", "full": "bad"}
RELATIONS: Final = {
    "quieter": "less busy than usual",
    "as_usual": "as usual",
    "busier": "busier than usual",
}
TRENDS: Final = {"rising": "↗ filling up", "falling": "↘ emptying", "steady": ""}
SENTIMENTS: Final = {"positive": "good", "neutral": "busy", "negative": "bad"}
HEALTH: Final = {"good": "good", "stale": "bad", "never": "warn", "off": "busy"}


def level(level: str | None, quality: str) -> tuple[str, str]:
    """The word, and the look of its pill."""
    if quality == "stale":
        return "sensors silent", "warn"
    return (level, LEVELS[level]) if level else ("no capacity set", "busy")


def inside(occupancy: int, capacity: int | None) -> str:
    return f"{occupancy:,} of {capacity:,}" if capacity else f"{occupancy:,}"


def clock(moment: datetime | None, zone: str) -> str:
    """By the hive's own clock."""
    return "–" if moment is None else f"{moment.astimezone(ZoneInfo(zone)):%-d %b %H:%M}"


def ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def among_peers(found: PeerComparison) -> str:
    if found.rank is None or not found.peers:
        return "There is no other place of its type to compare it with."
    theirs = f"{number(found.peer_visits)} visits a day are usual among them"
    return f"Number {found.rank} of {found.peers + 1} places of its type; {theirs}."


def change(share: float | None) -> str:
    if share is None:
        return "–"
    percent = round(100 * share)
    return f"{'+−'[percent < 0]}{abs(percent)} %" if percent else "0 %"


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    told = f"{value:,.0f}" if abs(value) >= 10 else f"{value:,.1f}"
    return f"{told} {unit}".rstrip()
