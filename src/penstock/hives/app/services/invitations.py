"""How people join an account: its admin asks, they accept or decline.

An invitation is told in the inbox and pushed to devices, in the transaction that makes it. Until
it is accepted the account learns nothing of the person and they may do nothing there. It holds for
two weeks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from penstock.core.errors import NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Conflict
from penstock.hives.app.domain.people import Invitation, Membership
from penstock.hives.app.domain.roles import Permission, Role
from penstock.hives.app.push.notes import Note
from penstock.hives.app.push.outbox import Outbox
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.people import AccountRepository
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.services.accounts import there

LIFE: Final = timedelta(days=14)
#: What nobody has answered: an account that asks everybody is no business.
MOST_OPEN: Final = 100
KIND: Final = "invitation"


class Invitations:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def invite(self, caller: Caller, account: int, user: int, role: Role) -> Invitation:
        """Ask somebody to join; asked again, they may have another role, and are told once."""
        caller.require(Permission.EDIT_MEMBERS, account)
        now = self._clock()
        async with self._pool.transaction() as connection:
            accounts = AccountRepository(connection)
            held = there(await accounts.get(account, now, lock=True), account)
            if held.status == "closed":
                raise Conflict(f"account {account} is closed: nobody can join it")
            if user in {member.user_id for member in await accounts.members(account)}:
                raise Conflict(f"user {user} is a member of account {account} already")
            waiting = await accounts.invitations(now, account=account)
            open_ones = {each.user_id: each for each in waiting}
            if user not in open_ones and len(open_ones) >= MOST_OPEN:
                raise Conflict(f"at most {MOST_OPEN} invitations without an answer: withdraw one")
            if not await accounts.invite(account, user, role, caller.id, now, now + LIFE):
                raise NotFound(f"there is no user {user}")
            if user not in open_ones:
                await Outbox(connection).put([_note(held.id, held.name, user, role, now)])
            await AuditRepository(connection).record(
                caller, "invite", "user", user, account, {"role": role.value}
            )
            [made] = await accounts.invitations(now, account=account, user=user)
        return made

    async def of_account(self, caller: Caller, account: int) -> list[Invitation]:
        caller.require(Permission.EDIT_MEMBERS, account)
        async with self._pool.reading() as connection:
            return await AccountRepository(connection).invitations(self._clock(), account=account)

    async def withdraw(self, caller: Caller, account: int, user: int) -> None:
        caller.require(Permission.EDIT_MEMBERS, account)
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
                raise NotFound(f"you are not invited to account {account}, or no longer")
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
                raise NotFound(f"you are not invited to account {account}")
            await AuditRepository(connection).record(
                caller, "decline", "user", caller.known, account
            )


def _note(account: int, name: str, user: int, role: Role, now: datetime) -> Note:
    position = "an admin" if role is Role.ACCOUNT_ADMIN else "a member"
    return Note(
        user,
        KIND,
        f"Join {name}?",
        f"{name} invites you to act for it as {position}. Accept or decline within two weeks.",
        f"{user}:{KIND}:{account}:{now.date()}",  # who declines is not asked all day long
        data={"account_id": account, "role": role.value},
        expires_at=now + LIFE,
        push_at=now,
    )
