"""Plans and who has them. What providers of payments say is entered elsewhere (`payments`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime

from penstock.core.errors import NotFound
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.cursors import Listed, listed, unpack
from penstock.hives.app.domain.errors import Conflict, Fault, Invalid
from penstock.hives.app.domain.plans import Plan, Subscription, Transaction
from penstock.hives.app.domain.roles import Permission
from penstock.hives.app.repositories.audit import AuditRepository
from penstock.hives.app.repositories.plans import PlanRepository
from penstock.hives.app.repositories.pool import Pool


class Plans:
    def __init__(self, pool: Pool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def plans(self) -> list[Plan]:
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).plans()

    async def subscriptions(self, caller: Caller, account: int | None) -> list[Subscription]:
        """One's own, or an account's."""
        user = self._whose(caller, account)
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).subscriptions(user, account)

    async def transactions(
        self, caller: Caller, account: int | None, cursor: str | None, limit: int
    ) -> Listed[Transaction]:
        user = self._whose(caller, account)
        before = unpack(cursor, int) or [None]
        async with self._pool.reading() as connection:
            plans = PlanRepository(connection)
            found = await plans.transactions(user, account, before[0], limit + 1)
        return listed(found, limit, lambda each: [each.id])

    async def grant(
        self,
        caller: Caller,
        plan: str,
        user: int | None,
        account: int | None,
        expires: datetime | None,
    ) -> Subscription:
        """By hand, to a user or to an account."""
        caller.require(Permission.GRANT_PLANS)
        if (user is None) == (account is None):
            raise Invalid("to whom?", [Fault("user_id", "is given, or account_id, not both")])
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            ref = f"manual-{uuid.uuid4()}"
            number = await plans.grant(plan, user, account, ref, expires)
            if number is None:
                raise Invalid("no such plan", [Fault("plan", f"{plan!r} is none for them")])
            await AuditRepository(connection).record(
                caller, "grant", "subscription", number, account, {"plan": plan}
            )
            made = await plans.subscription(number)
        assert made is not None
        return made

    async def cancel(self, caller: Caller, subscription: int) -> Subscription:
        """It runs to the end of what was paid for. Others' than our own are cancelled where they
        were bought: we would only pretend."""
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            held = await plans.subscription(subscription, lock=True)
            mine = held is not None and (
                caller.may(Permission.READ_BILLING, held.account_id)
                if held.account_id is not None
                else held.user_id == caller.id
            )
            if held is None or not (mine or caller.may(Permission.GRANT_PLANS)):
                raise NotFound(f"you have no subscription {subscription}")
            if held.provider not in ("manual", "test"):
                raise Conflict(f"it is cancelled where it was bought: {held.provider}")
            if held.status not in ("active", "trial", "past_due"):
                raise Conflict(f"it is {held.status} already")
            await plans.cancel(subscription, self._clock())
            await AuditRepository(connection).record(
                caller, "cancel", "subscription", subscription, held.account_id
            )
            made = await plans.subscription(subscription)
        assert made is not None
        return made

    def _whose(self, caller: Caller, account: int | None) -> int | None:
        if account is None:
            return caller.known
        caller.require(Permission.READ_BILLING, account)
        return None
