"""Notifications, pushes, and the rules for when a user may be disturbed.

Deals are *deferrable*: their push waits until the quiet hours end, and what is not pushed is still
in the inbox. Occupancy is not: in quiet hours there is no push, and within the cool-down there is
no notification at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification to a user, sent once per `key`."""

    user_id: int
    kind: str
    title: str
    body: str
    key: str
    link: str = ""  #: the target on the public page
    definition_id: int | None = None
    hive_id: int | None = None
    deal_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None  #: not pushed after this
    push_at: datetime | None = None  #: None: inbox only
    silent: bool = False  #: for devices only: it is not unread in the inbox


@dataclass(frozen=True, slots=True)
class PushMessage:
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
    attempts: int  #: including this one
    expires_at: datetime | None


class PushStatus(StrEnum):
    SENT = "sent"
    GONE = "gone"  #: the device does not exist any more
    AGAIN = "again"  #: a temporary failure
    REFUSED = "refused"  #: a permanent failure


@dataclass(frozen=True, slots=True)
class PushOutcome:
    status: PushStatus
    reason: str = ""
    after: float | None = None  #: seconds, from Retry-After


class PushChannel(Protocol):
    """A way to reach devices. Errors of a device or service are outcomes, not exceptions."""

    async def send(self, push: PushMessage) -> PushOutcome: ...

    async def close(self) -> None: ...


#: Pushes to a user in a local day.
DAILY_CAP: Final = 20


class NotificationVerdict(StrEnum):
    TELL = "tell"
    COOLING = "cooling"  #: within the cool-down
    QUIET = "quiet"  #: in quiet hours
    CAPPED = "capped"  #: the daily cap is reached


@dataclass(frozen=True, slots=True)
class NotificationPreferences:
    zone: str = "UTC"
    cooldown: float = 0.0  #: seconds
    quiet: tuple[time, time] | None = None
    push: bool = True
    last_notified: datetime | None = None
    notified_today: int = 0


@dataclass(frozen=True, slots=True)
class NotificationDecision:
    verdict: NotificationVerdict
    inbox: bool
    push_at: datetime | None = None  #: None: no push


def decide(
    preferences: NotificationPreferences,
    now: datetime,
    *,
    deferrable: bool,
    cap: int = DAILY_CAP,
) -> NotificationDecision:
    if preferences.last_notified is not None:
        again = preferences.last_notified + timedelta(seconds=preferences.cooldown)
        if now < again:
            return NotificationDecision(NotificationVerdict.COOLING, deferrable)
    if not preferences.push:
        return NotificationDecision(NotificationVerdict.TELL, True)
    if preferences.notified_today >= cap:
        return NotificationDecision(NotificationVerdict.CAPPED, True)
    end = quiet_until(preferences, now)
    if end is not None:
        return NotificationDecision(NotificationVerdict.QUIET, True, end if deferrable else None)
    return NotificationDecision(NotificationVerdict.TELL, True, now)


def quiet_until(preferences: NotificationPreferences, now: datetime) -> datetime | None:
    """The end of the current quiet hours; None outside of them."""
    if preferences.quiet is None:
        return None
    begins, ends = preferences.quiet
    zone = ZoneInfo(preferences.zone)
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
