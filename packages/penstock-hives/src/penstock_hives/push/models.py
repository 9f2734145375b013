"""What is told, and what becomes of a push: values that senders and channels share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Notification:
    """Something to tell somebody. The same key is told once."""

    user_id: int
    kind: str
    title: str
    body: str
    key: str
    link: str = ""  #: where a tap leads, on the public page
    definition_id: int | None = None
    hive_id: int | None = None
    deal_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None  #: not worth pushing after this
    push_at: datetime | None = None  #: when to push it to devices; None: it is for the inbox
    silent: bool = False  #: for devices only: nobody is to find it unread


@dataclass(frozen=True, slots=True)
class PushMessage:
    """A note on its way to one device."""

    id: int
    notification_id: int
    channel: str
    endpoint_id: int
    address: str
    keys: Mapping[str, str]
    title: str
    body: str
    link: str
    data: Mapping[str, Any]
    attempts: int  #: this one included
    expires_at: datetime | None


class PushStatus(StrEnum):
    SENT = "sent"
    GONE = "gone"  #: there is no such device any more: forget it
    AGAIN = "again"  #: not now
    REFUSED = "refused"  #: never


@dataclass(frozen=True, slots=True)
class PushOutcome:
    fate: PushStatus
    reason: str = ""
    after: float | None = None  #: seconds, where the service has said when to come again


class PushChannel(Protocol):
    """A way to reach devices. It never raises for what a device or its service does."""

    async def send(self, push: PushMessage) -> PushOutcome: ...

    async def close(self) -> None: ...


# When a person may be disturbed: cool-down, quiet hours, so many a day.
#
# Some news keep, such as a deal: they are as good in the morning, so in quiet hours their push
# waits, and whatever is held back from devices still lies in the inbox. How full a place is does
# not keep: in quiet hours there is no push, and within the cool-down it is the same news again and
# told nowhere.

#: Pushes to one person in one day of theirs.
DAILY_CAP: Final = 20


class NotificationVerdict(StrEnum):
    TELL = "tell"
    COOLING = "cooling"  #: told a moment ago
    QUIET = "quiet"  #: not at this hour
    CAPPED = "capped"  #: enough for today


@dataclass(frozen=True, slots=True)
class NotificationPreferences:
    """What a definition and its owner say about being disturbed."""

    zone: str = "UTC"
    cooldown: float = 0.0  #: seconds
    quiet: tuple[time, time] | None = None
    push: bool = True
    last_told: datetime | None = None
    told_today: int = 0


@dataclass(frozen=True, slots=True)
class NotificationDecision:
    verdict: NotificationVerdict
    inbox: bool
    push_at: datetime | None = None  #: None: not to devices


def decide(
    habits: NotificationPreferences, now: datetime, *, keeps: bool, cap: int = DAILY_CAP
) -> NotificationDecision:
    """Whether, and when. What keeps is as good in the morning."""
    if habits.last_told is not None:
        again = habits.last_told + timedelta(seconds=habits.cooldown)
        if now < again:
            return NotificationDecision(NotificationVerdict.COOLING, keeps)
    if not habits.push:
        return NotificationDecision(NotificationVerdict.TELL, True)
    if habits.told_today >= cap:
        return NotificationDecision(NotificationVerdict.CAPPED, True)
    end = quiet_until(habits, now)
    if end is not None:
        return NotificationDecision(NotificationVerdict.QUIET, True, end if keeps else None)
    return NotificationDecision(NotificationVerdict.TELL, True, now)


def quiet_until(habits: NotificationPreferences, now: datetime) -> datetime | None:
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


def start_of_day(zone: str, now: datetime) -> datetime:
    """The last midnight by somebody's own clock."""
    local = now.astimezone(ZoneInfo(zone))
    return datetime.combine(local.date(), time(), local.tzinfo).astimezone(UTC)
