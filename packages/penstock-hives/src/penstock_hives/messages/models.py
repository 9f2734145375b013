"""What people and businesses say to each other; no chat between users."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class MessageType(StrEnum):
    FEEDBACK = "feedback"  #: to a hive or its business
    SUPPORT = "support"  #: to those who run the installation
    REPLY = "reply"  #: to one of these, by either side
    SYSTEM = "system"  #: a notice


@dataclass(frozen=True, slots=True)
class UserMessage:
    id: int
    user_id: int
    author_id: int | None
    hive_id: int | None
    account_id: int | None
    in_reply_to: int | None
    type: str
    content: str
    rating: int | None
    read_at: datetime | None
    sentiment: float | None
    sentiment_label: str | None
    created_at: datetime
