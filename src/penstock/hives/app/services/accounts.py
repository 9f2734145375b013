"""Accounts: opened by anybody who has signed in, run by their admins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from penstock.core.errors import NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict
from penstock.hives.app.domain.people import Account, Member
from penstock.hives.app.domain.roles import EVERYWHERE, Permission, Role
from penstock.hives.app.domain.tags import unchanged
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.people import AccountRepository
from penstock.hives.app.repositories.pool import Pool


class Accounts:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def open(self, caller: Caller, name: str, time_zone: str) -> Account:
        caller.require(Permission.OPEN_ACCOUNT)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            values = {"name": name, "time_zone": time_zone, "billing_contact_uid": caller.uid}
            number = await accounts.add(values)
            await accounts.set_member(number, caller.known, Role.ACCOUNT_ADMIN)
            await accounts.entitle(caller.known)
            await AuditRepository(connection).record(caller, "open", "account", number, number)
            made = await accounts.get(number, self._clock())
        assert made is not None
        return made

    async def mine(self, caller: Caller, cursor: str | None, limit: int) -> Listed[Account]:
        """Those one belongs to; all, for those who reach into all."""
        user = None if caller.role in EVERYWHERE else caller.known
        after = unpack(cursor, int) or [0]
        async with self._pool.reading() as connection:
            accounts = AccountRepository(connection)
            found = await accounts.of_user(user, self._clock(), after[0], limit + 1)
        return listed(found, limit, lambda account: [account.id])

    async def get(self, caller: Caller, account: int) -> Account:
        caller.require(Permission.READ_ACCOUNT, account)
        async with self._pool.reading() as connection:
            found = await AccountRepository(connection).get(account, self._clock())
        return there(found, account)

    async def edit(
        self, caller: Caller, account: int, values: Mapping[str, Any], seen: str | None
    ) -> Account:
        caller.require(Permission.EDIT_ACCOUNT, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            held = there(await accounts.get(account, self._clock(), lock=True), account)
            unchanged(held, seen)
            await accounts.change(account, values)
            await AuditRepository(connection).record(
                caller, "edit", "account", account, account, {"fields": sorted(values)}
            )
            return there(await accounts.get(account, self._clock()), account)

    async def close(self, caller: Caller, account: int) -> None:
        """Its hives are hidden with it; nothing is erased."""
        caller.require(Permission.EDIT_ACCOUNT, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            there(await accounts.get(account, self._clock(), lock=True), account)
            await accounts.change(account, {"status": "closed"})
            await connection.execute(
                "UPDATE hive SET status = 'closed' WHERE account_id = %s", (account,)
            )
            await AuditRepository(connection).record(caller, "close", "account", account, account)

    async def members(self, caller: Caller, account: int) -> list[Member]:
        caller.require(Permission.READ_ACCOUNT, account)
        async with self._pool.reading() as connection:
            return await AccountRepository(connection).members(account)

    async def appoint(self, caller: Caller, account: int, user: int, role: Role) -> Member:
        """Give a member another role. Who is none is invited (`Invitations`)."""
        caller.require(Permission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            there(await accounts.get(account, self._clock(), lock=True), account)
            if user not in {member.user_id for member in await accounts.members(account)}:
                raise NotFound(
                    f"user {user} is no member of account {account}: invite them, they are one "
                    "when they accept"
                )
            if role is not Role.ACCOUNT_ADMIN:
                await _keep_an_admin(accounts, account, user)
            await accounts.set_member(account, user, role)
            await accounts.entitle(user)
            await AuditRepository(connection).record(
                caller, "appoint", "user", user, account, {"role": role.value}
            )
            members = await accounts.members(account)
        return next(member for member in members if member.user_id == user)

    async def dismiss(self, caller: Caller, account: int, user: int) -> None:
        """Members may also go by themselves."""
        if user != caller.id:
            caller.require(Permission.EDIT_MEMBERS, account)
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            there(await accounts.get(account, self._clock(), lock=True), account)
            await _keep_an_admin(accounts, account, user)
            if not await accounts.remove_member(account, user):
                raise NotFound(f"user {user} is no member of account {account}")
            await accounts.entitle(user)
            await AuditRepository(connection).record(caller, "dismiss", "user", user, account)


async def _keep_an_admin(accounts: AccountRepository, account: int, leaving: int) -> None:
    admins = {m.user_id for m in await accounts.members(account) if m.role == Role.ACCOUNT_ADMIN}
    if admins == {leaving}:
        raise Conflict(f"account {account} would have no admin: appoint another first")


def there(found: Account | None, account: int) -> Account:
    if found is None:
        raise NotFound(f"there is no account {account}")
    return found
