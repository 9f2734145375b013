"""Plans and who has them. What providers of payments say is entered elsewhere (`payments`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock_hives.billing.models import (
    BillingEvent,
    Entitlement,
    PaymentTransaction,
    PlanSubscription,
    SubscriptionOwner,
    SubscriptionPlan,
    fold_events,
    merge_entitlement,
)
from penstock_hives.billing.repository import BillingLedger, PlanRepository
from penstock_hives.database import DatabasePool
from penstock_hives.errors import FieldError, InvalidRequest, RequestConflict
from penstock_hives.pagination import CursorPage, decode_cursor, paginate
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository


class PlanService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def plans(self) -> list[SubscriptionPlan]:
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).plans()

    async def subscriptions(self, caller: Caller, account: int | None) -> list[PlanSubscription]:
        """One's own, or an account's."""
        user = self._whose(caller, account)
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).subscriptions(user, account)

    async def transactions(
        self, caller: Caller, account: int | None, cursor: str | None, limit: int
    ) -> CursorPage[PaymentTransaction]:
        user = self._whose(caller, account)
        before = decode_cursor(cursor, int) or [None]
        async with self._pool.reading() as connection:
            plans = PlanRepository(connection)
            found = await plans.transactions(user, account, before[0], limit + 1)
        return paginate(found, limit, lambda each: [each.id])

    async def grant(
        self,
        caller: Caller,
        plan: str,
        user: int | None,
        account: int | None,
        expires: datetime | None,
    ) -> PlanSubscription:
        """By hand, to a user or to an account."""
        caller.require(AppPermission.GRANT_PLANS)
        if (user is None) == (account is None):
            raise InvalidRequest(
                "to whom?", [FieldError("user_id", "is given, or account_id, not both")]
            )
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            ref = f"manual-{uuid.uuid4()}"
            number = await plans.grant(plan, user, account, ref, expires)
            if number is None:
                raise InvalidRequest(
                    "no such plan", [FieldError("plan", f"{plan!r} is none for them")]
                )
            await AuditRepository(connection).record(
                caller, "grant", "subscription", number, account, {"plan": plan}
            )
            made = await plans.subscription(number)
        assert made is not None
        return made

    async def cancel(self, caller: Caller, subscription: int) -> PlanSubscription:
        """It runs to the end of what was paid for. Others' than our own are cancelled where they
        were bought: we would only pretend."""
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            held = await plans.subscription(subscription, lock=True)
            mine = held is not None and (
                caller.may(AppPermission.READ_BILLING, held.account_id)
                if held.account_id is not None
                else held.user_id == caller.id
            )
            if held is None or not (mine or caller.may(AppPermission.GRANT_PLANS)):
                raise NotFound(f"you have no subscription {subscription}")
            if held.provider not in ("manual", "test"):
                raise RequestConflict(f"it is cancelled where it was bought: {held.provider}")
            if held.status not in ("active", "trial", "past_due"):
                raise RequestConflict(f"it is {held.status} already")
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
        caller.require(AppPermission.READ_BILLING, account)
        return None


# What becomes of an event: kept once, folded with the others, and written down.
#
# An event that cannot be applied yet, because nobody has said whose the subscription is or there is
# no such plan, is kept all the same: the provider is told that we have it, and the next event about
# that subscription takes it along.

log = get_logger(__name__)


class EventOutcome(StrEnum):
    APPLIED = "applied"
    SEEN = "seen"  #: it was here before; nothing changed
    WAITING = "waiting"  #: kept until more is known


class PaymentService:
    def __init__(
        self, pool: DatabasePool, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._pool = pool
        self._clock = clock

    async def apply(self, event: BillingEvent) -> EventOutcome:
        async with self._pool.transaction() as connection:
            books = BillingLedger(connection)
            await books.lock(event.provider)
            if not await books.keep(event):
                return EventOutcome.SEEN
            return await self._fold(books, event)

    async def entitlement(self, owner: SubscriptionOwner) -> Entitlement:
        """What somebody may use, whoever they pay for it."""
        async with self._pool.reading() as connection:
            held = await BillingLedger(connection).held(owner)
        otherwise = "free" if owner.user_id is not None else "business_free"
        return merge_entitlement(held, self._clock(), otherwise)

    async def _fold(self, books: BillingLedger, event: BillingEvent) -> EventOutcome:
        ref = await books.reference(event)
        if ref is None:
            return EventOutcome.WAITING
        events = await books.events(event.provider, ref)
        folded = fold_events(events)
        if folded is None:
            return EventOutcome.WAITING
        if not await books.known(folded.owner):
            return await self._wait(books, event, "there is no such user or account")
        subscription = await books.subscribe(event.provider, ref, folded)
        if subscription is None:
            return await self._wait(books, event, f"there is no plan {folded.standing.plan}")
        for each in events:
            await books.book(subscription, each)
        await books.applied(event.provider, ref, self._clock())
        return EventOutcome.APPLIED

    async def _wait(self, books: BillingLedger, event: BillingEvent, reason: str) -> EventOutcome:
        log.warning("payment event waits", provider=event.provider, id=event.id, reason=reason)
        await books.failed(event, reason)
        return EventOutcome.WAITING
