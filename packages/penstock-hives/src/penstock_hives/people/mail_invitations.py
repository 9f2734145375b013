"""Invitations to join a business by e-mail, for people who may not have an account yet.

The mail has a link with a token, of which the database has a digest. Whoever has the link and signs
in can accept it, once, within two weeks. An address gets at most one mail an hour from a business.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.errors import NotFound
from penstock_hives.database import Connection, DatabasePool, fetch_all, fetch_one
from penstock_hives.errors import RequestConflict
from penstock_hives.identity.mail import MailSender, invitation_mail
from penstock_hives.identity.repository import digest
from penstock_hives.identity.service import normalize_login
from penstock_hives.people.models import Membership
from penstock_hives.people.permissions import AppPermission, Caller, UserRole
from penstock_hives.people.repository import AccountRepository, AuditRepository
from penstock_hives.people.service import LIFE, MAX_OPEN, require_account

#: Between two mails of a business to one address.
PAUSE: Final = timedelta(hours=1)
_COLUMNS: Final = """
    i.account_id, a.name AS account, i.email, i.role, i.created_at, i.expires_at
    FROM mail_invitation i JOIN account a ON a.id = i.account_id AND a.status <> 'closed'
"""
_SET: Final = """
    INSERT INTO mail_invitation AS held
        (hash, account_id, email, role, invited_by, created_at, expires_at)
    VALUES (%(hash)s, %(account)s, %(email)s, %(role)s, %(by)s, %(now)s, %(until)s)
    ON CONFLICT (account_id, email) DO UPDATE SET
        hash = excluded.hash, role = excluded.role, invited_by = excluded.invited_by,
        created_at = excluded.created_at, expires_at = excluded.expires_at
"""


@dataclass(frozen=True, slots=True)
class MailInvitation:
    account_id: int
    account: str  #: its name
    email: str
    role: str
    created_at: datetime
    expires_at: datetime


class MailInvitationService:
    def __init__(
        self,
        pool: DatabasePool,
        clock: Callable[[], datetime],
        mail: MailSender,
        sender: str,
        link: str,
    ) -> None:
        """`link` is the page that accepts an invitation; the token is appended."""
        self._pool = pool
        self._clock = clock
        self._mail = mail
        self._sender = sender
        self._link = link

    async def invite(
        self, caller: Caller, account: int, email: str, role: UserRole
    ) -> MailInvitation:
        """Send a link; an earlier one to the same address is no longer valid."""
        caller.require(AppPermission.EDIT_MEMBERS, account)
        email, now, token = normalize_login(email), self._clock(), secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            held = await AccountRepository(connection).get(account, now, lock=True)
            name = require_account(held, account).name
            known = await _of_account(connection, account, now)
            before = next((each for each in known if each.email == email), None)
            if before is not None and now - before.created_at < PAUSE:
                raise RequestConflict(f"{email} was invited less than an hour ago")
            if before is None and len(known) >= MAX_OPEN:
                raise RequestConflict(f"at most {MAX_OPEN} open invitations: withdraw one first")
            given = {"hash": digest(token), "account": account, "email": email, "role": role.value}
            await connection.execute(
                _SET, {**given, "by": caller.id, "now": now, "until": now + LIFE}
            )
            await AuditRepository(connection).record(
                caller, "invite", "mail_invitation", None, account, {"role": role.value}
            )
        mail = invitation_mail(self._sender, email, name, f"{self._link}{token}")
        await self._mail.send(mail)
        return MailInvitation(account, name, email, role.value, now, now + LIFE)

    async def of_account(self, caller: Caller, account: int) -> list[MailInvitation]:
        caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.reading() as connection:
            return await _of_account(connection, account, self._clock())

    async def withdraw(self, caller: Caller, account: int, email: str) -> None:
        caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            done = await connection.execute(
                "DELETE FROM mail_invitation WHERE account_id = %s AND email = %s", (account, email)
            )
            if not done.rowcount:
                raise NotFound(f"{email} is not invited to account {account}")
            await AuditRepository(connection).record(
                caller, "withdraw", "mail_invitation", None, account
            )

    async def find(self, token: str) -> MailInvitation:
        async with self._pool.reading() as connection:
            return await _find(connection, token, self._clock())

    async def accept(self, caller: Caller, token: str) -> Membership:
        now = self._clock()
        async with self._pool.transaction() as connection:
            found = await _find(connection, token, now)
            accounts = AccountRepository(connection)
            await accounts.get(found.account_id, now, lock=True)
            done = await connection.execute(
                "DELETE FROM mail_invitation WHERE hash = %s", (digest(token),)
            )
            if not done.rowcount:
                raise NotFound(_ENDED)
            role = caller.memberships.get(found.account_id)
            if role is not UserRole.ACCOUNT_ADMIN:
                await accounts.set_member(found.account_id, caller.known, found.role)
            await accounts.entitle(caller.known)
            await AuditRepository(connection).record(
                caller, "join", "user", caller.known, found.account_id, {"role": found.role}
            )
        return Membership(found.account_id, found.account, found.role)


_ENDED: Final = "the invitation is invalid or has expired: ask for another"


async def _of_account(connection: Connection, account: int, now: datetime) -> list[MailInvitation]:
    return await fetch_all(
        connection,
        MailInvitation,
        f"SELECT {_COLUMNS} WHERE i.account_id = %s AND i.expires_at > %s ORDER BY i.created_at",
        (account, now),
    )


async def _find(connection: Connection, token: str, now: datetime) -> MailInvitation:
    statement = f"SELECT {_COLUMNS} WHERE i.hash = %s AND i.expires_at > %s"
    found = await fetch_one(connection, MailInvitation, statement, (digest(token), now))
    if found is None:
        raise NotFound(_ENDED)
    return found
