"""The tables of users. Blocking; call it in a thread.

Tokens and session keys are stored as digests, passwords as argon2id hashes.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_store import Database

SESSION_DAYS: Final = 14
_NAME: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")
#: Shorter ones are guessed.
MIN_PASSWORD: Final = 8


class JobRole(StrEnum):
    SUBMITTER = "submitter"  #: submits jobs; sees and cancels their own
    VIEWER = "viewer"  #: sees all jobs and changes none
    OPERATOR = "operator"  #: sees, submits and cancels all jobs; reads the audit log


@dataclass(frozen=True, slots=True)
class JobUser:
    name: str
    role: JobRole

    @property
    def may_submit(self) -> bool:
        return self.role is not JobRole.VIEWER

    @property
    def sees_all(self) -> bool:
        return self.role is not JobRole.SUBMITTER

    @property
    def is_operator(self) -> bool:
        return self.role is JobRole.OPERATOR


@dataclass(frozen=True, slots=True)
class JobAuditEntry:
    at: datetime
    who: str
    action: str
    job: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JobToken:
    """An access token without its secret."""

    key: str  #: names it; not the token
    label: str
    created: datetime


class UserRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, password_hash: str, role: JobRole) -> None:
        if not _NAME.fullmatch(name):
            raise PreconditionFailed(f"user {name!r}: letters, digits and _.@+-, at most 64")
        added = self._database.execute(
            "INSERT INTO job_user (name, password_hash, role) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (name, password_hash, role.value),
        )
        if not added:
            raise PreconditionFailed(f"there is a user {name!r}")
        self.log("operator", "user added", detail=f"{name}, {role}")

    def change(
        self, name: str, *, password_hash: str | None = None, role: JobRole | None = None
    ) -> None:
        """Ends the sessions of the user; tokens stay."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE job_user SET password_hash = coalesce(%s, password_hash), "
                "role = coalesce(%s, role) WHERE name = %s",
                (password_hash, role and role.value, name),
            ).rowcount
            connection.execute("DELETE FROM job_session WHERE user_name = %s", (name,))
        self._check(changed, name)
        self.log("operator", "user changed", detail=f"{name}{f', {role}' if role else ''}")

    def remove(self, name: str) -> None:
        self._check(self._database.execute("DELETE FROM job_user WHERE name = %s", (name,)), name)
        self.log("operator", "user removed", detail=name)

    def users(self) -> list[JobUser]:
        rows = self._database.rows("SELECT name, role FROM job_user ORDER BY name")
        return [_user(row) for row in rows]

    def password_hash(self, name: str) -> str | None:
        rows = self._database.rows("SELECT password_hash FROM job_user WHERE name = %s", (name,))
        return rows[0]["password_hash"] if rows else None

    def tokens(self, name: str) -> list[JobToken]:
        """The newest first."""
        rows = self._database.rows(
            "SELECT encode(substr(digest, 1, 8), 'hex') AS key, label, created_at AS created "
            "FROM job_token WHERE user_name = %s ORDER BY created_at DESC, digest",
            (name,),
        )
        return [JobToken(**row) for row in rows]

    def new_token(self, name: str, label: str = "", who: str = "operator") -> str:
        """The token, which is not stored."""
        token = secrets.token_urlsafe(32)
        added = self._database.execute(
            "INSERT INTO job_token (digest, user_name, label) "
            "SELECT %s, name, %s FROM job_user WHERE name = %s",
            (_digest(token), label, name),
        )
        self._check(added, name)
        self.log(who, "token created", detail=f"{name} {label}".strip())
        return token

    def revoke_token(self, name: str, key: str, who: str) -> None:
        rows = self._database.rows(
            "DELETE FROM job_token WHERE user_name = %s "
            "AND encode(substr(digest, 1, 8), 'hex') = %s RETURNING label",
            (name, key),
        )
        if not rows:
            raise NotFound(f"{name} has no such token")
        self.log(who, "token revoked", detail=f"{name} {rows[0]['label']}".strip())

    def revoke_tokens(self, name: str, label: str | None = None) -> int:
        count = self._database.execute(
            "DELETE FROM job_token WHERE user_name = %s AND (%s::text IS NULL OR label = %s)",
            (name, label, label),
        )
        self.log("operator", "tokens revoked", detail=f"{name}: {count}")
        return count

    def user_of_token(self, token: str) -> JobUser | None:
        return self._user(
            "SELECT name, role FROM job_user JOIN job_token ON user_name = name WHERE digest = %s",
            token,
        )

    def new_session(self, name: str) -> str:
        key = secrets.token_urlsafe(32)
        until = datetime.now(UTC) + timedelta(days=SESSION_DAYS)
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM job_session WHERE expires_at < now()")
            connection.execute(
                "INSERT INTO job_session (digest, user_name, expires_at) VALUES (%s, %s, %s)",
                (_digest(key), name, until),
            )
        return key

    def user_of_session(self, key: str) -> JobUser | None:
        return self._user(
            "SELECT name, role FROM job_user JOIN job_session ON user_name = name "
            "WHERE digest = %s AND expires_at > now()",
            key,
        )

    def end_session(self, key: str) -> None:
        self._database.execute("DELETE FROM job_session WHERE digest = %s", (_digest(key),))

    def log(self, who: str, action: str, job: str = "", detail: str = "") -> None:
        self._database.execute(
            "INSERT INTO job_audit (who, action, job, detail) VALUES (%s, %s, %s, %s)",
            (who, action, job, detail[:1000]),
        )

    def audit(self, limit: int = 100, job: str | None = None) -> list[JobAuditEntry]:
        """The newest first."""
        rows = self._database.rows(
            "SELECT at, who, action, job, detail FROM job_audit "
            "WHERE %s::text IS NULL OR job = %s ORDER BY number DESC LIMIT %s",
            (job, job, limit),
        )
        return [JobAuditEntry(**row) for row in rows]

    def _user(self, statement: str, secret: str) -> JobUser | None:
        rows = self._database.rows(statement, (_digest(secret),))
        return _user(rows[0]) if rows else None

    def _check(self, changed: int, name: str) -> None:
        if not changed:
            raise NotFound(f"there is no user {name!r}")


def _user(row: dict[str, Any]) -> JobUser:
    return JobUser(row["name"], JobRole(row["role"]))


def _digest(secret: str) -> bytes:
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=32).digest()
