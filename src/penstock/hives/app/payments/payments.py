"""What becomes of an event: kept once, folded with the others, and written down.

An event that cannot be applied yet, because nobody has said whose the subscription is or there is
no such plan, is kept all the same: the provider is told that we have it, and the next event about
that subscription takes it along.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from penstock.core.logs import get_logger
from penstock.hives.app.payments.books import PaymentBooks
from penstock.hives.app.payments.entitlement import Entitlement, merge
from penstock.hives.app.payments.events import Event, Owner
from penstock.hives.app.payments.folding import fold
from penstock.hives.app.repositories.pool import Pool

log = get_logger(__name__)


class Applied(StrEnum):
    APPLIED = "applied"
    SEEN = "seen"  #: it was here before; nothing changed
    WAITING = "waiting"  #: kept until more is known


class Payments:
    def __init__(
        self, pool: Pool, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._pool = pool
        self._clock = clock

    async def apply(self, event: Event) -> Applied:
        async with self._pool.transaction() as connection:
            books = PaymentBooks(connection)
            await books.lock(event.provider)
            if not await books.keep(event):
                return Applied.SEEN
            return await self._fold(books, event)

    async def entitlement(self, owner: Owner) -> Entitlement:
        """What somebody may use, whoever they pay for it."""
        async with self._pool.reading() as connection:
            held = await PaymentBooks(connection).held(owner)
        otherwise = "free" if owner.user_id is not None else "business_free"
        return merge(held, self._clock(), otherwise)

    async def _fold(self, books: PaymentBooks, event: Event) -> Applied:
        ref = await books.reference(event)
        if ref is None:
            return Applied.WAITING
        events = await books.events(event.provider, ref)
        folded = fold(events)
        if folded is None:
            return Applied.WAITING
        if not await books.known(folded.owner):
            return await self._wait(books, event, "there is no such user or account")
        subscription = await books.subscribe(event.provider, ref, folded)
        if subscription is None:
            return await self._wait(books, event, f"there is no plan {folded.standing.plan}")
        for each in events:
            await books.book(subscription, each)
        await books.applied(event.provider, ref, self._clock())
        return Applied.APPLIED

    async def _wait(self, books: PaymentBooks, event: Event, reason: str) -> Applied:
        log.warning("payment event waits", provider=event.provider, id=event.id, reason=reason)
        await books.failed(event, reason)
        return Applied.WAITING
