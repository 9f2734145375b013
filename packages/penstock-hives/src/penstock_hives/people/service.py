"""Users, API keys, accounts, members and invitations.

An invitation is sent to inbox and devices in the transaction that creates it. Until it is accepted
the account learns nothing of the user. It is valid for two weeks.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.core.errors import AuthenticationFailed, NotFound
from penstock_hives.database import DatabasePool
from penstock_hives.encoding import check_if_match
from penstock_hives.errors import RequestConflict, require_found
from penstock_hives.pagination import CursorPage, decode_id, paginate
from penstock_hives.people.models import (
    AccountMember,
    ApiKey,
    AuditEntry,
    BusinessAccount,
    Invitation,
    Membership,
    NewApiKey,
    UserProfile,
    UserSummary,
)
from penstock_hives.people.permissions import EVERYWHERE, AppPermission, Caller, UserRole
from penstock_hives.people.repository import AccountRepository, AuditRepository, PeopleRepository
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox
from penstock_hives.translation import translate

#: The prefix of keys, so that leaked ones can be recognized.
PREFIX: Final = "hive_"
_MAX_KEYS: Final = 20
#: Of one person: each business has a place without a plan.
MAX_ACCOUNTS: Final = 10


class UserService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def caller(self, uid: str) -> Caller:
        """The user with this uid; created on the first request."""
        async with self._pool.reading() as connection:
            return await PeopleRepository(connection).caller(uid, self._clock())

    async def profile(self, caller: Caller) -> UserProfile:
        async with self._pool.reading() as connection:
            found = await PeopleRepository(connection).profile(caller.known, self._clock())
        return _require_user(found)

    async def edit(
        self, caller: Caller, values: Mapping[str, Any], seen: str | None
    ) -> UserProfile:
        async with self._pool.transaction() as connection:
            people = PeopleRepository(connection)
            held = await people.profile(caller.known, self._clock(), lock=True)
            check_if_match(_require_user(held), seen)
            await people.change(caller.known, values)
            return _require_user(await people.profile(caller.known, self._clock()))

    async def export(self, caller: Caller) -> dict[str, Any]:
        """Everything that is stored about the caller."""
        profile = await self.profile(caller)
        async with self._pool.reading() as connection:
            rows = await PeopleRepository(connection).export(caller.known)
        return {"made_at": self._clock(), "profile": profile, **rows}

    async def leave(self, caller: Caller) -> None:
        """Delete the user's data; data of businesses stays, without the user."""
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            for account, role in caller.memberships.items():
                if role is UserRole.ACCOUNT_ADMIN:
                    await accounts.get(account, self._clock(), lock=True)
                    await _require_other_admin(accounts, account, caller.known)
            await PeopleRepository(connection).erase(caller.known)
            await AuditRepository(connection).record(caller, "leave", "user", caller.known)

    async def users(
        self, caller: Caller, cursor: str | None, limit: int
    ) -> CursorPage[UserSummary]:
        caller.require(AppPermission.READ_USERS)
        after = decode_id(cursor) or 0
        async with self._pool.reading() as connection:
            found = await PeopleRepository(connection).users(after, limit + 1)
        return paginate(found, limit, lambda user: [user.id])

    async def appoint(self, caller: Caller, user: int, role: UserRole) -> None:
        """Change the role of a user."""
        caller.require(AppPermission.EDIT_ROLES)
        if user == caller.id:
            raise RequestConflict("you cannot change your own role: ask another admin")
        async with self._pool.transaction() as connection:
            if not await PeopleRepository(connection).change(user, {"role": role.value}):
                raise NotFound(f"user {user} not found")
            if role is UserRole.USER:
                await AccountRepository(connection).entitle(user)
            await AuditRepository(connection).record(
                caller, "appoint", "user", user, details={"role": role.value}
            )

    async def audit(
        self, caller: Caller, account: int | None, cursor: str | None, limit: int
    ) -> CursorPage[AuditEntry]:
        """Of one account, or of all for operators."""
        if account is None:
            caller.require(AppPermission.READ_USERS)
        else:
            caller.require(AppPermission.READ_AUDIT, account)
        before = decode_id(cursor)
        async with self._pool.reading() as connection:
            found = await AuditRepository(connection).entries(account, before, limit + 1)
        return paginate(found, limit, lambda entry: [entry.id])


class ApiKeyService:
    """API keys; a program with a key acts as its user. Only digests are stored."""

    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def caller(self, secret: str) -> Caller:
        async with self._pool.reading() as connection:
            people = PeopleRepository(connection)
            found = await people.caller_by_key(_digest(secret), self._clock())
        if found is None:
            raise AuthenticationFailed("the API key is invalid or has expired")
        return found

    async def make(self, caller: Caller, name: str, expires: datetime | None) -> NewApiKey:
        secret = PREFIX + secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            people = PeopleRepository(connection)
            if len(await people.keys(caller.known)) >= _MAX_KEYS:
                raise RequestConflict(f"at most {_MAX_KEYS} API keys: revoke one first")
            hint = secret[: len(PREFIX) + 4]
            key = await people.add_key(caller.known, name, _digest(secret), hint, expires)
            await AuditRepository(connection).record(caller, "make", "api_key", key.id)
        return NewApiKey(key, secret)

    async def of_user(self, caller: Caller) -> list[ApiKey]:
        async with self._pool.reading() as connection:
            return await PeopleRepository(connection).keys(caller.known)

    async def revoke(self, caller: Caller, key: int) -> None:
        async with self._pool.transaction() as connection:
            if not await PeopleRepository(connection).revoke_key(caller.known, key):
                raise NotFound(f"API key {key} not found")
            await AuditRepository(connection).record(caller, "revoke", "api_key", key)


def _digest(secret: str) -> bytes:
    # Keys are random and long, so a fast digest is enough.
    return hashlib.sha256(secret.encode()).digest()


def _require_user(found: UserProfile | None) -> UserProfile:
    if found is None:
        raise AuthenticationFailed("this user was deleted")
    return found


class AccountService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def open(self, caller: Caller, name: str, time_zone: str) -> BusinessAccount:
        caller.require(AppPermission.OPEN_ACCOUNT)
        if len(caller.memberships) >= MAX_ACCOUNTS and caller.role not in EVERYWHERE:
            raise RequestConflict(f"at most {MAX_ACCOUNTS} businesses: close one or leave it first")
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            values = {"name": name, "time_zone": time_zone, "billing_contact_uid": caller.uid}
            number = await accounts.add(values)
            await accounts.set_member(number, caller.known, UserRole.ACCOUNT_ADMIN)
            await accounts.entitle(caller.known)
            await AuditRepository(connection).record(caller, "open", "account", number, number)
            return require_account(await accounts.get(number, self._clock()), number)

    async def mine(
        self, caller: Caller, cursor: str | None, limit: int
    ) -> CursorPage[BusinessAccount]:
        """The caller's accounts; for operators all."""
        user = None if caller.role in EVERYWHERE else caller.known
        after = decode_id(cursor) or 0
        async with self._pool.reading() as connection:
            accounts = AccountRepository(connection)
            found = await accounts.of_user(user, self._clock(), after, limit + 1)
        return paginate(found, limit, lambda account: [account.id])

    async def get(self, caller: Caller, account: int) -> BusinessAccount:
        caller.require(AppPermission.READ_ACCOUNT, account)
        async with self._pool.reading() as connection:
            found = await AccountRepository(connection).get(account, self._clock())
        return require_account(found, account)

    async def edit(
        self, caller: Caller, account: int, values: Mapping[str, Any], seen: str | None
    ) -> BusinessAccount:
        caller.require(AppPermission.EDIT_ACCOUNT, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            held = require_account(await accounts.get(account, self._clock(), lock=True), account)
            check_if_match(held, seen)
            await accounts.change(account, values)
            await AuditRepository(connection).record(
                caller, "edit", "account", account, account, {"fields": sorted(values)}
            )
            return require_account(await accounts.get(account, self._clock()), account)

    async def close(self, caller: Caller, account: int) -> None:
        """Close the account and hide its hives; nothing is deleted."""
        caller.require(AppPermission.EDIT_ACCOUNT, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            require_account(await accounts.get(account, self._clock(), lock=True), account)
            await accounts.change(account, {"status": "closed"})
            await connection.execute(
                "UPDATE hive SET status = 'closed' WHERE account_id = %s", (account,)
            )
            await AuditRepository(connection).record(caller, "close", "account", account, account)

    async def members(self, caller: Caller, account: int) -> list[AccountMember]:
        caller.require(AppPermission.READ_ACCOUNT, account)
        async with self._pool.reading() as connection:
            return await AccountRepository(connection).members(account)

    async def appoint(
        self, caller: Caller, account: int, user: int, role: UserRole
    ) -> AccountMember:
        """Change the role of a member."""
        caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            require_account(await accounts.get(account, self._clock(), lock=True), account)
            if user not in {member.user_id for member in await accounts.members(account)}:
                raise NotFound(f"user {user} is not a member of account {account}: invite them")
            if role is not UserRole.ACCOUNT_ADMIN:
                await _require_other_admin(accounts, account, user)
            await accounts.set_member(account, user, role)
            await accounts.entitle(user)
            await AuditRepository(connection).record(
                caller, "appoint", "user", user, account, {"role": role.value}
            )
            members = await accounts.members(account)
        return next(member for member in members if member.user_id == user)

    async def dismiss(self, caller: Caller, account: int, user: int) -> None:
        """Remove a member; members may also leave."""
        if user != caller.id:
            caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            require_account(await accounts.get(account, self._clock(), lock=True), account)
            await _require_other_admin(accounts, account, user)
            if not await accounts.remove_member(account, user):
                raise NotFound(f"user {user} is not a member of account {account}")
            await accounts.entitle(user)
            await AuditRepository(connection).record(caller, "dismiss", "user", user, account)


async def _require_other_admin(accounts: AccountRepository, account: int, leaving: int) -> None:
    admins = {
        m.user_id for m in await accounts.members(account) if m.role == UserRole.ACCOUNT_ADMIN
    }
    if admins == {leaving}:
        raise RequestConflict(
            f"account {account} would have no admin: appoint another, or close the account"
        )


def require_account(found: BusinessAccount | None, account: int) -> BusinessAccount:
    return require_found(found, f"account {account}")


LIFE: Final = timedelta(days=14)
#: Open invitations of an account.
MAX_OPEN: Final = 100
KIND: Final = "invitation"


class InvitationService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def invite(self, caller: Caller, account: int, user: int, role: UserRole) -> Invitation:
        """A repeated invitation may change the role; the user is notified once."""
        caller.require(AppPermission.EDIT_MEMBERS, account)
        now = self._clock()
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            held = require_account(await accounts.get(account, now, lock=True), account)
            if held.status == "closed":
                raise RequestConflict(f"account {account} is closed")
            if user in {member.user_id for member in await accounts.members(account)}:
                raise RequestConflict(f"user {user} is a member of account {account} already")
            waiting = await accounts.invitations(now, account=account)
            open_ones = {each.user_id: each for each in waiting}
            if user not in open_ones and len(open_ones) >= MAX_OPEN:
                raise RequestConflict(f"at most {MAX_OPEN} open invitations: withdraw one first")
            if not await accounts.invite(account, user, role, caller.id, now, now + LIFE):
                raise NotFound(f"user {user} not found")
            if user not in open_ones:
                locale = await PeopleRepository(connection).locale(user)
                note = _note(held.id, held.name, user, role, now, locale)
                await Outbox(connection).add([note])
            await AuditRepository(connection).record(
                caller, "invite", "user", user, account, {"role": role.value}
            )
            [made] = await accounts.invitations(now, account=account, user=user)
        return made

    async def of_account(self, caller: Caller, account: int) -> list[Invitation]:
        caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.reading() as connection:
            return await AccountRepository(connection).invitations(self._clock(), account=account)

    async def withdraw(self, caller: Caller, account: int, user: int) -> None:
        caller.require(AppPermission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            if not await AccountRepository(connection).withdraw(account, user):
                raise NotFound(f"user {user} is not invited to account {account}")
            await AuditRepository(connection).record(caller, "withdraw", "user", user, account)

    async def mine(self, caller: Caller) -> list[Invitation]:
        async with self._pool.reading() as connection:
            return await AccountRepository(connection).invitations(self._clock(), user=caller.known)

    async def accept(self, caller: Caller, account: int) -> Membership:
        now = self._clock()
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            await accounts.get(account, now, lock=True)
            found = await accounts.invitations(now, account=account, user=caller.known)
            if not found:
                raise NotFound(f"no valid invitation to account {account}")
            [invitation] = found
            await accounts.withdraw(account, caller.known)
            await accounts.set_member(account, caller.known, invitation.role)
            await accounts.entitle(caller.known)
            await AuditRepository(connection).record(
                caller, "join", "user", caller.known, account, {"role": invitation.role}
            )
        return Membership(account, invitation.account, invitation.role)

    async def decline(self, caller: Caller, account: int) -> None:
        async with self._pool.transaction() as connection:
            if not await AccountRepository(connection).withdraw(account, caller.known):
                raise NotFound(f"no invitation to account {account}")
            await AuditRepository(connection).record(
                caller, "decline", "user", caller.known, account
            )


def _note(
    account: int, name: str, user: int, role: UserRole, now: datetime, locale: str
) -> Notification:
    if role is UserRole.ACCOUNT_ADMIN:
        body = translate(_AS_ADMIN, locale, account=name)
    else:
        body = translate(_AS_MEMBER, locale, account=name)
    return Notification(
        user,
        KIND,
        translate("Join {account}?", locale, account=name),
        body,
        f"{user}:{KIND}:{account}:{now.date()}",  # at most one a day
        data={"account_id": account, "role": role.value},
        expires_at=now + LIFE,
        push_at=now,
    )


_AS_ADMIN: Final = (
    "{account} invites you to act for it as an admin. Accept or decline within two weeks."
)
_AS_MEMBER: Final = (
    "{account} invites you to act for it as a member. Accept or decline within two weeks."
)
