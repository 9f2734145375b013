"""Users and their keys: who somebody is to us, what they tell of themselves, how they leave."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import AuthenticationFailed, NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict
from penstock.hives.app.domain.people import ApiKey, AuditEntry, NewApiKey, Profile, User
from penstock.hives.app.domain.roles import Permission, Role
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.people import AccountRepository, PeopleRepository
from penstock.hives.app.repositories.pool import Pool

#: What keys begin with, so that they are known when they are found where they should not be.
PREFIX: Final = "hive_"
_MOST_KEYS: Final = 20


class Users:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def caller(self, uid: str) -> Caller:
        """Who has this identifier; entered when they are seen first."""
        async with self._pool.reading() as connection:
            return await PeopleRepository(connection).caller(uid, self._clock())

    async def profile(self, caller: Caller) -> Profile:
        async with self._pool.reading() as connection:
            found = await PeopleRepository(connection).profile(caller.known, self._clock())
        return _there(found)

    async def edit(self, caller: Caller, values: Mapping[str, Any], seen: str | None) -> Profile:
        async with self._pool.transaction() as connection:
            people = PeopleRepository(connection)
            held = await people.profile(caller.known, self._clock(), lock=True)
            unchanged(_there(held), seen)
            await people.change(caller.known, values)
            return _there(await people.profile(caller.known, self._clock()))

    async def leave(self, caller: Caller) -> None:
        """All that is theirs is erased; what a business relies on remains without them."""
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            for account, role in caller.memberships.items():
                if role is Role.ACCOUNT_ADMIN:
                    await accounts.get(account, self._clock(), lock=True)
                    members = await accounts.members(account)
                    _another_admin(account, caller.known, {m.user_id: m.role for m in members})
            await PeopleRepository(connection).erase(caller.known)
            await AuditRepository(connection).record(caller, "leave", "user", caller.known)

    async def users(self, caller: Caller, cursor: str | None, limit: int) -> Listed[User]:
        caller.require(Permission.READ_USERS)
        after = unpack(cursor, int) or [0]
        async with self._pool.reading() as connection:
            found = await PeopleRepository(connection).users(after[0], limit + 1)
        return listed(found, limit, lambda user: [user.id])

    async def appoint(self, caller: Caller, user: int, role: Role) -> None:
        """Make somebody an operator or an admin, or no longer so."""
        caller.require(Permission.EDIT_ROLES)
        if user == caller.id:
            raise Conflict("one does not appoint oneself: ask another admin")
        async with self._pool.transaction() as connection:
            if not await PeopleRepository(connection).change(user, {"role": role.value}):
                raise NotFound(f"there is no user {user}")
            if role is Role.USER:
                await AccountRepository(connection).entitle(user)
            await AuditRepository(connection).record(
                caller, "appoint", "user", user, details={"role": role.value}
            )

    async def audit(
        self, caller: Caller, account: int | None, cursor: str | None, limit: int
    ) -> Listed[AuditEntry]:
        """Of an account; of all of them for those who reach into all."""
        if account is None:
            caller.require(Permission.READ_USERS)
        else:
            caller.require(Permission.READ_AUDIT, account)
        before = unpack(cursor, int) or [None]
        async with self._pool.reading() as connection:
            found = await AuditRepository(connection).entries(account, before[0], limit + 1)
        return listed(found, limit, lambda entry: [entry.id])


class ApiKeys:
    """Keys that programs act with, as whoever made them. Only digests are kept."""

    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def caller(self, secret: str) -> Caller:
        async with self._pool.reading() as connection:
            people = PeopleRepository(connection)
            found = await people.caller_by_key(_digest(secret), self._clock())
        if found is None:
            raise AuthenticationFailed("no such API key, or it has expired")
        return found

    async def make(self, caller: Caller, name: str, expires: datetime | None) -> NewApiKey:
        secret = PREFIX + secrets.token_urlsafe(32)
        async with self._pool.transaction() as connection:
            people = PeopleRepository(connection)
            if len(await people.keys(caller.known)) >= _MOST_KEYS:
                raise Conflict(f"at most {_MOST_KEYS} keys: revoke one first")
            hint = secret[: len(PREFIX) + 4]
            key = await people.add_key(caller.known, name, _digest(secret), hint, expires)
            await AuditRepository(connection).record(caller, "make", "api_key", key.id)
        return NewApiKey(key, secret)

    async def of(self, caller: Caller) -> list[ApiKey]:
        async with self._pool.reading() as connection:
            return await PeopleRepository(connection).keys(caller.known)

    async def revoke(self, caller: Caller, key: int) -> None:
        async with self._pool.transaction() as connection:
            if not await PeopleRepository(connection).revoke_key(caller.known, key):
                raise NotFound(f"you have no key {key}")
            await AuditRepository(connection).record(caller, "revoke", "api_key", key)


def _digest(secret: str) -> bytes:
    # Random and long: a plain digest is enough, and is asked for with every request.
    return hashlib.sha256(secret.encode()).digest()


def _there(found: Profile | None) -> Profile:
    if found is None:
        raise AuthenticationFailed("this user has left")
    return found


def _another_admin(account: int, user: int, roles: Mapping[int, str]) -> None:
    if not any(role == Role.ACCOUNT_ADMIN and member != user for member, role in roles.items()):
        raise Conflict(f"account {account} would have no admin: appoint another, or close it")
