"""People and businesses: profiles, accounts and who belongs to them, keys, what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Membership:
    account_id: int
    account: str
    role: str


@dataclass(frozen=True, slots=True)
class UserProfile:
    """What somebody sees of themselves. There is nothing else: no address, no number."""

    id: int
    nickname: str | None
    role: str
    locale: str
    time_zone: str
    age_band: str | None
    gender: str | None
    plan: str
    features: tuple[str, ...]
    memberships: tuple[Membership, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class UserSummary:
    """What operators see of somebody."""

    id: int
    nickname: str | None
    role: str
    locale: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BusinessAccount:
    id: int
    name: str
    billing_contact_uid: str | None
    status: str
    time_zone: str
    plan: str
    hives: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AccountMember:
    user_id: int
    nickname: str | None
    role: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """To join an account; nothing changes before it is accepted."""

    account_id: int
    account: str
    user_id: int
    role: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: int
    name: str
    hint: str
    expires_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key when it was made: its secret is told this once."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: int
    at: datetime
    user_id: int | None
    action: str
    entity: str
    entity_id: int | None
    account_id: int | None
    details: Mapping[str, Any]
