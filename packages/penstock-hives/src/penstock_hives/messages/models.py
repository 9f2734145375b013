"""Messages between users, businesses and operators, and summaries of feedback."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum


class MessageType(StrEnum):
    FEEDBACK = "feedback"  #: to a hive or its business
    SUPPORT = "support"  #: to the operators
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


@dataclass(frozen=True, slots=True)
class FeedbackDay:
    """The feedback to a hive on a local day, as rated by the nightly run."""

    hive_id: int
    day: date
    messages: int
    positive: int
    negative: int
    sentiment: float  #: between -1 and 1


@dataclass(frozen=True, slots=True)
class FeedbackSummary:
    hive_id: int | None
    messages: int
    positive: int
    neutral: int
    negative: int
    unread: int
    mean_sentiment: float | None
