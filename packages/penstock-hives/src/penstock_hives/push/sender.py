"""Sends due pushes from the outbox, retries failed ones and removes devices that are gone.

The sender wakes up when a push is added, when one is due, and twice a minute. Any number of senders
may run; each leases different pushes. Temporary failures are retried with backoff, from five
seconds to an hour. Once an hour notifications older than ninety days are deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy, is_transient
from penstock_hives.database import DatabasePool
from penstock_hives.push.models import PushChannel, PushMessage, PushOutcome, PushStatus
from penstock_hives.push.repository import Outbox

log = get_logger(__name__)

#: Pushes in flight.
MAX_CONCURRENT: Final = 32
MAX_ATTEMPTS: Final = 8
RETRY: Final = RetryPolicy(first=5.0, longest=3600.0, jitter=0.0)
POLL_SECONDS: Final = 30.0
#: Of notifications, read or not.
RETENTION: Final = timedelta(days=90)
SWEEP_EVERY: Final = timedelta(hours=1)


@dataclass(slots=True)
class SenderStats:
    sent: int = 0
    again: int = 0
    refused: int = 0
    gone: int = 0


class PushSender:
    def __init__(
        self,
        pool: DatabasePool,
        channels: Mapping[str, PushChannel],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.figures = SenderStats()
        self._pool = pool
        self._channels = dict(channels)
        self._clock = clock
        self._wake_up = asyncio.Event()
        self._swept: datetime | None = None

    def wake(self) -> None:
        self._wake_up.set()

    async def run(self) -> None:
        while True:
            try:
                while await self.send_due():
                    pass
                await self._sweep_hourly()
                pause = await self._pause()
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("outbox unavailable", reason=str(error))
                pause = RETRY.first
            try:
                await asyncio.wait_for(self._wake_up.wait(), pause)
            except TimeoutError:
                continue
            self._wake_up.clear()

    async def send_due(self) -> int:
        """Send one batch of due pushes; returns their number."""
        async with self._pool.transaction() as connection:
            due = await Outbox(connection).lease(
                list(self._channels), self._clock(), MAX_CONCURRENT
            )
        await asyncio.gather(*map(self._send, due))
        return len(due)

    async def sweep(self) -> int:
        """Delete old notifications; returns their number."""
        gone, before = 0, self._clock() - RETENTION
        while True:
            async with self._pool.transaction() as connection:
                some = await Outbox(connection).sweep(before)
            gone += some
            if not some:
                return gone

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _send(self, push: PushMessage) -> None:
        now = self._clock()
        if push.expires_at is not None and push.expires_at <= now:
            outcome = PushOutcome(PushStatus.REFUSED, "expired")
        else:
            outcome = await self._channels[push.channel].send(push)
        async with self._pool.transaction() as connection:
            await self._complete(Outbox(connection), push, outcome)

    async def _complete(self, outbox: Outbox, push: PushMessage, outcome: PushOutcome) -> None:
        now = self._clock()
        match outcome.status:
            case PushStatus.SENT:
                self.figures.sent += 1
                await outbox.complete(push, "sent", now)
                await outbox.used(push.endpoint_id, now)
            case PushStatus.GONE:
                self.figures.gone += 1
                log.info("push device removed", endpoint=push.endpoint_id, reason=outcome.reason)
                await outbox.delete_endpoint(push.endpoint_id)
            case PushStatus.AGAIN if push.attempts < MAX_ATTEMPTS:
                self.figures.again += 1
                again = now + timedelta(seconds=outcome.after or RETRY.delay(push.attempts))
                await outbox.complete(push, "pending", now, outcome.reason, again)
                await outbox.failed(push.endpoint_id)
            case _:
                self.figures.refused += 1
                log.warning("push failed", push=push.id, reason=outcome.reason)
                expired = push.expires_at is not None and push.expires_at <= now
                await outbox.complete(push, "dropped" if expired else "failed", now, outcome.reason)

    async def _sweep_hourly(self) -> None:
        now = self._clock()
        if self._swept is None or now - self._swept >= SWEEP_EVERY:
            self._swept = now
            if gone := await self.sweep():
                log.info("notifications expired", notifications=gone)

    async def _pause(self) -> float:
        async with self._pool.reading() as connection:
            due = await Outbox(connection).next_due(list(self._channels))
        if due is None:
            return POLL_SECONDS
        return min(max((due - self._clock()).total_seconds(), 0.05), POLL_SECONDS)
