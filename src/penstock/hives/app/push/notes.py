"""What is told, and what becomes of a push: values that senders and channels share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Note:
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
class Push:
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


class Fate(StrEnum):
    SENT = "sent"
    GONE = "gone"  #: there is no such device any more: forget it
    AGAIN = "again"  #: not now
    REFUSED = "refused"  #: never


@dataclass(frozen=True, slots=True)
class Outcome:
    fate: Fate
    reason: str = ""
    after: float | None = None  #: seconds, where the service has said when to come again


class Channel(Protocol):
    """A way to reach devices. It never raises for what a device or its service does."""

    async def send(self, push: Push) -> Outcome: ...

    async def close(self) -> None: ...
