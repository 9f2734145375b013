"""Plans and subscriptions of users and accounts, and the events of payment providers.

An event that cannot be applied yet, because the owner or the plan is unknown, is stored; the next
event of the subscription applies it, too.
"""

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
from penstock_hives.errors import RequestConflict, invalid_field, require_found
from penstock_hives.pagination import CursorPage, decode_id, paginate
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.people.repository import AuditRepository

log = get_logger(__name__)


class PlanService:
    def __init__(self, pool: DatabasePool, clock: Callable[[], datetime]) -> None:
        self._pool = pool
        self._clock = clock

    async def plans(self) -> list[SubscriptionPlan]:
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).plans()

    async def subscriptions(self, caller: Caller, account: int | None) -> list[PlanSubscription]:
        """Of the caller, or of an account."""
        user = self._owner(caller, account)
        async with self._pool.reading() as connection:
            return await PlanRepository(connection).subscriptions(user, account)

    async def transactions(
        self, caller: Caller, account: int | None, cursor: str | None, limit: int
    ) -> CursorPage[PaymentTransaction]:
        user = self._owner(caller, account)
        async with self._pool.reading() as connection:
            plans = PlanRepository(connection)
            found = await plans.transactions(user, account, decode_id(cursor), limit + 1)
        return paginate(found, limit, lambda each: [each.id])

    async def grant(
        self,
        caller: Caller,
        plan: str,
        user: int | None,
        account: int | None,
        expires: datetime | None,
    ) -> PlanSubscription:
        """By an operator, to a user or an account."""
        caller.require(AppPermission.GRANT_PLANS)
        if (user is None) == (account is None):
            raise invalid_field("user_id", "or account_id must be given, not both")
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            ref = f"manual-{uuid.uuid4()}"
            number = await plans.grant(plan, user, account, ref, expires)
            if number is None:
                raise invalid_field("plan", f"must be a plan for this owner, got {plan!r}")
            await AuditRepository(connection).record(
                caller, "grant", "subscription", number, account, {"plan": plan}
            )
            return require_found(await plans.subscription(number), f"subscription {number}")

    async def cancel(self, caller: Caller, subscription: int) -> PlanSubscription:
        """Ends after the paid period. Subscriptions of a store are cancelled there."""
        async with self._pool.transaction() as connection:
            plans = PlanRepository(connection)
            held = await plans.subscription(subscription, lock=True)
            own = held is not None and (
                caller.may(AppPermission.READ_BILLING, held.account_id)
                if held.account_id is not None
                else held.user_id == caller.id
            )
            if held is None or not (own or caller.may(AppPermission.GRANT_PLANS)):
                raise NotFound(f"subscription {subscription} not found")
            if held.provider not in ("manual", "test"):
                raise RequestConflict(
                    f"cancel the subscription where it was bought: {held.provider}"
                )
            if held.status not in ("active", "trial", "past_due"):
                raise RequestConflict(f"the subscription is {held.status}")
            await plans.cancel(subscription, self._clock())
            await AuditRepository(connection).record(
                caller, "cancel", "subscription", subscription, held.account_id
            )
            found = await plans.subscription(subscription)
            return require_found(found, f"subscription {subscription}")

    def _owner(self, caller: Caller, account: int | None) -> int | None:
        if account is None:
            return caller.known
        caller.require(AppPermission.READ_BILLING, account)
        return None


class EventOutcome(StrEnum):
    APPLIED = "applied"
    SEEN = "seen"  #: a repetition
    WAITING = "waiting"  #: stored until more is known


class PaymentService:
    def __init__(
        self, pool: DatabasePool, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._pool = pool
        self._clock = clock

    async def apply(self, event: BillingEvent) -> EventOutcome:
        async with self._pool.transaction() as connection:
            ledger = BillingLedger(connection)
            await ledger.lock(event.provider)
            if not await ledger.add(event):
                return EventOutcome.SEEN
            return await self._fold(ledger, event)

    async def entitlement(self, owner: SubscriptionOwner) -> Entitlement:
        """Merged from the subscriptions with all providers."""
        async with self._pool.reading() as connection:
            held = await BillingLedger(connection).subscriptions(owner)
        otherwise = "free" if owner.user_id is not None else "business_free"
        return merge_entitlement(held, self._clock(), otherwise)

    async def _fold(self, ledger: BillingLedger, event: BillingEvent) -> EventOutcome:
        ref = await ledger.reference(event)
        if ref is None:
            return EventOutcome.WAITING
        events = await ledger.events(event.provider, ref)
        folded = fold_events(events)
        if folded is None:
            return EventOutcome.WAITING
        if not await ledger.owner_exists(folded.owner):
            return await self._wait(ledger, event, "the user or account does not exist")
        subscription = await ledger.subscribe(event.provider, ref, folded)
        if subscription is None:
            return await self._wait(ledger, event, f"plan {folded.state.plan} does not exist")
        for each in events:
            await ledger.add_entry(subscription, each)
        await ledger.mark_applied(event.provider, ref, self._clock())
        return EventOutcome.APPLIED

    async def _wait(self, ledger: BillingLedger, event: BillingEvent, reason: str) -> EventOutcome:
        log.warning("billing event pending", provider=event.provider, id=event.id, reason=reason)
        await ledger.mark_failed(event, reason)
        return EventOutcome.WAITING
