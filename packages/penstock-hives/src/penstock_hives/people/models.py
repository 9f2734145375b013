"""Users, business accounts, members, invitations, API keys and audit entries."""

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
    """All data of a user; there is no e-mail address or phone number."""

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
    """To join an account; without effect until it is accepted."""

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
    """A new key; its secret is returned only once."""

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
