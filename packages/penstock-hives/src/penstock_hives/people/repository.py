"""Users, accounts, members, invitations, API keys and the audit log in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from psycopg.types.json import Jsonb
from pydantic_core import to_jsonable_python

from penstock_hives.billing.repository import ENTITLED
from penstock_hives.database import Connection, fetch_all, fetch_one, insert_row, update_row
from penstock_hives.errors import TooManyRequests
from penstock_hives.people.models import (
    AccountMember,
    ApiKey,
    AuditEntry,
    BusinessAccount,
    Invitation,
    Membership,
    UserProfile,
    UserSummary,
)
from penstock_hives.people.permissions import EVERYWHERE, Caller, UserRole

_CREATE: Final = """
    INSERT INTO app_user (firebase_uid) VALUES (%(uid)s) ON CONFLICT (firebase_uid) DO NOTHING
"""
#: With the plans of the user and of their accounts.
_CALLER: Final = f"""
    SELECT u.id, u.firebase_uid, u.role, u.deleted_at,
           (SELECT json_object_agg(m.account_id, m.role) FROM account_member m
             JOIN account a ON a.id = m.account_id AND a.status <> 'closed'
             WHERE m.user_id = u.id) AS memberships,
           (SELECT json_agg(DISTINCT e.plan) FROM ({ENTITLED}) AS e WHERE e.user_id = u.id
             OR e.account_id IN (SELECT account_id FROM account_member WHERE user_id = u.id)
           ) AS plans,
           (SELECT json_agg(DISTINCT e.feature) FROM ({ENTITLED}) AS e WHERE e.user_id = u.id
             OR e.account_id IN (SELECT account_id FROM account_member WHERE user_id = u.id)
           ) AS features
    FROM app_user u
"""
_RANKED: Final = """
    SELECT code FROM subscription_type WHERE code = ANY (%(plans)s) ORDER BY rank DESC LIMIT 1
"""
_INVITE: Final = """
    INSERT INTO account_invitation (account_id, user_id, role, invited_by, created_at, expires_at)
    SELECT %(account)s, id, %(role)s, %(by)s, %(now)s, %(until)s FROM app_user
    WHERE id = %(user)s AND deleted_at IS NULL
    ON CONFLICT (account_id, user_id) DO UPDATE SET role = excluded.role,
        invited_by = excluded.invited_by, created_at = excluded.created_at,
        expires_at = excluded.expires_at
"""
_INVITATIONS: Final = """
    SELECT i.account_id, a.name AS account, i.user_id, i.role, i.created_at, i.expires_at
    FROM account_invitation i
    JOIN account a ON a.id = i.account_id AND a.status <> 'closed'
    WHERE (%(account)s::bigint IS NULL OR i.account_id = %(account)s)
      AND (%(user)s::bigint IS NULL OR i.user_id = %(user)s) AND i.expires_at > %(now)s
    ORDER BY i.account_id, i.user_id
"""
_MEMBERSHIPS: Final = """
    SELECT m.account_id, a.name AS account, m.role FROM account_member m
    JOIN account a ON a.id = m.account_id WHERE m.user_id = %s ORDER BY m.account_id
"""
_ACCOUNT: Final = f"""
    SELECT a.id, a.name, a.billing_contact_uid, a.status, a.time_zone, a.created_at,
           coalesce((SELECT e.plan FROM ({ENTITLED}) AS e WHERE e.account_id = a.id
                     ORDER BY e.rank DESC LIMIT 1), 'business_free') AS plan,
           (SELECT count(*) FROM hive h WHERE h.account_id = a.id AND h.status = 'active') AS hives
    FROM account a
"""
_KEY_COLUMNS: Final = "id, name, hint, expires_at, last_used_at, created_at"
_USE_KEY: Final = """
    UPDATE api_key SET last_used_at = %(now)s
    WHERE hash = %(hash)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(now)s)
    RETURNING user_id
"""
#: Deletes the data of a user, except what others rely on.
_ERASE: Final = (
    "DELETE FROM user_message WHERE user_id = %(user)s",
    "DELETE FROM user_analytics WHERE user_id = %(user)s",
    "DELETE FROM user_hive WHERE user_id = %(user)s",
    "DELETE FROM user_notification_def WHERE user_id = %(user)s",
    "DELETE FROM notification WHERE user_id = %(user)s",
    "DELETE FROM push_endpoint WHERE user_id = %(user)s",
    "DELETE FROM deal_preference WHERE user_id = %(user)s",
    "DELETE FROM deal_recommendation WHERE user_id = %(user)s",
    "DELETE FROM api_key WHERE user_id = %(user)s",
    "DELETE FROM account_member WHERE user_id = %(user)s",
    "DELETE FROM account_invitation WHERE user_id = %(user)s",
    "DELETE FROM credential WHERE uid = (SELECT firebase_uid FROM app_user WHERE id = %(user)s)",
    "UPDATE deal_redemption SET user_id = NULL WHERE user_id = %(user)s",
    "UPDATE deal_event SET user_id = NULL WHERE user_id = %(user)s AND kind <> 'redeemed'",
    """UPDATE app_user SET deleted_at = now(), nickname = NULL, age_band = NULL, gender = NULL,
        role = 'user', firebase_uid = 'deleted:' || id WHERE id = %(user)s""",
)


#: Everything that is stored about a user, but secrets and addresses of devices.
_EXPORT: Final[Mapping[str, str]] = {
    "login": "SELECT c.login, c.created_at FROM credential c "
    "JOIN app_user u ON u.firebase_uid = c.uid WHERE u.id = %(user)s",
    "places": "SELECT hive_id, favourite, favourite_at, last_visited_at, visit_count "
    "FROM user_hive WHERE user_id = %(user)s",
    "alerts": "SELECT * FROM user_notification_def WHERE user_id = %(user)s ORDER BY id",
    "deal_preferences": "SELECT * FROM deal_preference WHERE user_id = %(user)s",
    "deal_events": "SELECT deal_id, kind, at FROM deal_event WHERE user_id = %(user)s ORDER BY at",
    "redemptions": "SELECT code, deal_id, redeemed_at, verified_at FROM deal_redemption "
    "WHERE user_id = %(user)s ORDER BY redeemed_at",
    "messages": "SELECT * FROM user_message WHERE user_id = %(user)s ORDER BY id",
    "notifications": "SELECT kind, title, body, link, created_at, read_at FROM notification "
    "WHERE user_id = %(user)s ORDER BY id",
    "devices": "SELECT kind, locale, created_at, last_used_at FROM push_endpoint "
    "WHERE user_id = %(user)s ORDER BY id",
    "activity": "SELECT at, action, page_identifier, hive_id, deal_id, data_json "
    "FROM user_analytics WHERE user_id = %(user)s ORDER BY at",
    "api_keys": f"SELECT {_KEY_COLUMNS} FROM api_key WHERE user_id = %(user)s ORDER BY id",
    "subscriptions": "SELECT provider, status, started_at, renews_at, cancelled_at, expires_at "
    "FROM subscription WHERE user_id = %(user)s ORDER BY id",
}


class PeopleRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def locale(self, user: int) -> str:
        statement = "SELECT locale FROM app_user WHERE id = %s"
        row = await (await self._connection.execute(statement, (user,))).fetchone()
        return "en" if row is None else str(row["locale"])

    async def caller(self, uid: str, now: datetime) -> Caller:
        """The user with this uid; created on the first request."""
        found = await self._caller("WHERE u.firebase_uid = %(uid)s", {"uid": uid, "now": now})
        if found is None:
            await self._connection.execute(_CREATE, {"uid": uid})
            found = await self._caller("WHERE u.firebase_uid = %(uid)s", {"uid": uid, "now": now})
        assert found is not None
        return found

    async def caller_by_key(self, digest: bytes, now: datetime) -> Caller | None:
        given: dict[str, Any] = {"hash": digest, "now": now}
        row = await (await self._connection.execute(_USE_KEY, given)).fetchone()
        if row is None:
            return None
        return await self._caller("WHERE u.id = %(user)s", {"user": row["user_id"], "now": now})

    async def profile(self, user: int, now: datetime, *, lock: bool = False) -> UserProfile | None:
        statement = f"""
            SELECT id, nickname, role, locale, time_zone, age_band, gender, created_at
            FROM app_user WHERE id = %s AND deleted_at IS NULL {"FOR UPDATE" if lock else ""}
        """
        row = await (await self._connection.execute(statement, (user,))).fetchone()
        caller = await self._caller("WHERE u.id = %(user)s", {"user": user, "now": now})
        if row is None or caller is None:
            return None
        found = await self._connection.execute(_MEMBERSHIPS, (user,))
        memberships = tuple([Membership(**each) async for each in found])
        features = tuple(sorted(caller.features))
        return UserProfile(**row, plan=caller.plan, features=features, memberships=memberships)

    async def change(self, user: int, values: Mapping[str, Any]) -> bool:
        return await update_row(self._connection, "app_user", user, values)

    async def export(self, user: int) -> dict[str, list[dict[str, Any]]]:
        """All rows about the user, by what they are."""
        found = {}
        for name, statement in _EXPORT.items():
            rows = await self._connection.execute(statement, {"user": user})
            found[name] = await rows.fetchall()
        return found

    async def erase(self, user: int) -> None:
        for statement in _ERASE:
            await self._connection.execute(statement, {"user": user})

    async def users(self, after: int, limit: int) -> list[UserSummary]:
        statement = """
            SELECT id, nickname, role, locale, created_at FROM app_user
            WHERE deleted_at IS NULL AND id > %s ORDER BY id LIMIT %s
        """
        return await fetch_all(self._connection, UserSummary, statement, (after, limit))

    async def add_key(
        self, user: int, name: str, digest: bytes, hint: str, expires: datetime | None
    ) -> ApiKey:
        statement = f"""
            INSERT INTO api_key (user_id, name, hash, hint, expires_at)
            VALUES (%s, %s, %s, %s, %s) RETURNING {_KEY_COLUMNS}
        """
        given = (user, name, digest, hint, expires)
        row = await (await self._connection.execute(statement, given)).fetchone()
        assert row is not None
        return ApiKey(**row)

    async def keys(self, user: int) -> list[ApiKey]:
        statement = f"""
            SELECT {_KEY_COLUMNS} FROM api_key WHERE user_id = %s AND revoked_at IS NULL ORDER BY id
        """
        return await fetch_all(self._connection, ApiKey, statement, (user,))

    async def revoke_key(self, user: int, key: int) -> bool:
        statement = """
            UPDATE api_key SET revoked_at = now()
            WHERE id = %s AND user_id = %s AND revoked_at IS NULL
        """
        return (await self._connection.execute(statement, (key, user))).rowcount == 1

    async def _caller(self, where: str, given: Mapping[str, Any]) -> Caller | None:
        row = await (await self._connection.execute(_CALLER + where, given)).fetchone()
        if row is None or row["deleted_at"] is not None:
            return None
        plan = "free"
        if row["plans"]:
            ranked = await self._connection.execute(_RANKED, {"plans": row["plans"]})
            best = await ranked.fetchone()
            plan = best["code"] if best else plan
        memberships = {int(key): UserRole(role) for key, role in (row["memberships"] or {}).items()}
        features = frozenset(row["features"] or ())
        uid = row["firebase_uid"]
        return Caller(row["id"], uid, UserRole(row["role"]), plan, features, memberships)


class AccountRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(
        self, account: int, now: datetime, *, lock: bool = False
    ) -> BusinessAccount | None:
        statement = f"{_ACCOUNT} WHERE a.id = %(account)s {'FOR UPDATE OF a' if lock else ''}"
        given = {"account": account, "now": now}
        return await fetch_one(self._connection, BusinessAccount, statement, given)

    async def of_user(
        self, user: int | None, now: datetime, after: int, limit: int
    ) -> list[BusinessAccount]:
        """Accounts of a user; without one, all."""
        statement = f"""
            {_ACCOUNT} WHERE a.id > %(after)s AND (%(user)s::bigint IS NULL OR a.id IN (
                SELECT account_id FROM account_member WHERE user_id = %(user)s))
            ORDER BY a.id LIMIT %(limit)s
        """
        given = {"user": user, "now": now, "after": after, "limit": limit}
        return await fetch_all(self._connection, BusinessAccount, statement, given)

    async def add(self, values: Mapping[str, Any]) -> int:
        return await insert_row(self._connection, "account", values)

    async def change(self, account: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "account", account, values)

    async def members(self, account: int) -> list[AccountMember]:
        statement = """
            SELECT m.user_id, u.nickname, m.role, m.created_at FROM account_member m
            JOIN app_user u ON u.id = m.user_id WHERE m.account_id = %s ORDER BY m.user_id
        """
        return await fetch_all(self._connection, AccountMember, statement, (account,))

    async def set_member(self, account: int, user: int, role: str) -> bool:
        """False if the user does not exist."""
        statement = """
            INSERT INTO account_member (account_id, user_id, role)
            SELECT %(account)s, id, %(role)s FROM app_user
            WHERE id = %(user)s AND deleted_at IS NULL
            ON CONFLICT (account_id, user_id) DO UPDATE SET role = excluded.role
        """
        given = {"account": account, "user": user, "role": role}
        return (await self._connection.execute(statement, given)).rowcount == 1

    async def remove_member(self, account: int, user: int) -> bool:
        statement = "DELETE FROM account_member WHERE account_id = %s AND user_id = %s"
        return (await self._connection.execute(statement, (account, user))).rowcount == 1

    async def invite(
        self, account: int, user: int, role: str, by: int | None, now: datetime, until: datetime
    ) -> bool:
        """Create or renew an invitation; false if the user does not exist."""
        given = {"account": account, "user": user, "role": role, "by": by, "now": now}
        given["until"] = until
        return (await self._connection.execute(_INVITE, given)).rowcount == 1

    async def invitations(
        self, now: datetime, *, account: int | None = None, user: int | None = None
    ) -> list[Invitation]:
        """Valid invitations of an account, to a user, or both."""
        given = {"account": account, "user": user, "now": now}
        return await fetch_all(self._connection, Invitation, _INVITATIONS, given)

    async def withdraw(self, account: int, user: int) -> bool:
        """False if there was no invitation, valid or not."""
        statement = "DELETE FROM account_invitation WHERE account_id = %s AND user_id = %s"
        return (await self._connection.execute(statement, (account, user))).rowcount == 1

    async def entitle(self, user: int) -> None:
        """Set the user's role to their highest role in any account; not for operators."""
        statement = """
            UPDATE app_user SET role = coalesce((
                SELECT min(m.role) FROM account_member m WHERE m.user_id = %(user)s), 'user')
            WHERE id = %(user)s AND role IN ('user', 'account_member', 'account_admin')
        """  # 'account_admin' sorts before 'account_member'
        await self._connection.execute(statement, {"user": user})


_RECORD: Final = """
    INSERT INTO audit_log (user_id, action, entity, entity_id, account_id, details)
    VALUES (%(user)s, %(action)s, %(entity)s, %(id)s, %(account)s, %(details)s)
"""
_READ: Final = """
    SELECT id, at, user_id, action, entity, entity_id, account_id, details FROM audit_log
    WHERE (%(account)s::bigint IS NULL OR account_id = %(account)s)
      AND (%(before)s::bigint IS NULL OR id < %(before)s)
    ORDER BY id DESC LIMIT %(limit)s
"""


#: What an account, or a person without one, may do so often in 24 hours. Each of these costs others
#: something: mail, pushes, work of the pipeline, room on the disk. Operators have no limit.
DAILY_LIMITS: Final[Mapping[tuple[str, str], int]] = {
    ("add", "image"): 200,
    ("add", "network"): 50,
    ("add", "webhook"): 50,
    ("begin", "checkout"): 50,
    ("configure", "sensor"): 1000,
    ("count", "hive"): 500,
    ("define", "metric"): 200,
    ("invite", "mail_invitation"): 50,
    ("invite", "user"): 100,
    ("make", "deal"): 50,
    ("open", "billing_portal"): 50,
    ("open", "hive"): 100,
    ("make", "api_key"): 50,
    ("provision", "sensor"): 500,
    ("register", "sensor"): 200,
    ("verify", "deal"): 20_000,
}
#: Of every other recorded action.
DAILY_LIMIT: Final = 2000
_LATELY: Final = """
    SELECT FROM audit_log WHERE {whose} AND action = %(action)s
        AND entity = %(entity)s AND at > now() - interval '1 day'
    LIMIT %(most)s
"""
_OF_ACCOUNT: Final = _LATELY.format(whose="account_id = %(account)s")
_OF_PERSON: Final = _LATELY.format(whose="user_id = %(user)s AND account_id IS NULL")


class AuditRepository:
    """Table `audit_log`, written in the transaction of the change. It counts what is limited."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def record(
        self,
        caller: Caller,
        action: str,
        entity: str,
        number: int | None = None,
        account: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises `TooManyRequests` beyond a daily limit."""
        most = DAILY_LIMITS.get((action, entity), DAILY_LIMIT)
        given = {
            "most": most,
            "user": caller.id,
            "action": action,
            "entity": entity,
            "id": number,
            "account": account,
            "details": Jsonb(to_jsonable_python(details or {})),
        }
        if caller.role not in EVERYWHERE:
            statement = _OF_PERSON if account is None else _OF_ACCOUNT
            lately = await self._connection.execute(statement, given)
            if lately.rowcount >= most:
                detail = f"at most {most} times a day: {action} {entity.replace('_', ' ')}"
                raise TooManyRequests(detail, 3600.0)
        await self._connection.execute(_RECORD, given)

    async def entries(
        self, account: int | None, before: int | None, limit: int
    ) -> list[AuditEntry]:
        given = {"account": account, "before": before, "limit": limit}
        return await fetch_all(self._connection, AuditEntry, _READ, given)
