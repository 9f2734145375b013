"""Sends what is due, again what failed, and forgets devices that are gone.

It wakes when a push is put in the outbox, when one is due, and twice a minute in any case. Any
number of senders may run: each takes different pushes. What a service refuses for now is tried
again with pauses that double, from five seconds to an hour, until it is no longer worth it. Notes
are kept for ninety days, read or not; once an hour those that are older are deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock_hives.database import DatabasePool
from penstock_hives.push.models import PushChannel, PushMessage, PushOutcome, PushStatus
from penstock_hives.push.repository import Outbox

log = get_logger(__name__)

#: Pushes on their way at a time; a slow service holds up no more than these.
MAX_CONCURRENT: Final = 32
MAX_ATTEMPTS: Final = 8
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 3600.0
POLL_SECONDS: Final = 30.0
#: How long a note is kept, in the inbox too.
RETENTION: Final = timedelta(days=90)
SWEEP_EVERY: Final = timedelta(hours=1)


@dataclass(slots=True)
class SenderStats:
    sent: int = 0
    again: int = 0
    refused: int = 0
    gone: int = 0


class PushSender:
    """Sends through channels, by their names."""

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
        self._woken = asyncio.Event()
        self._swept: datetime | None = None

    def wake(self) -> None:
        """There is something new in the outbox."""
        self._woken.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                while await self.send_due():
                    pass
                await self._sweep_hourly()
                pause = await self._pause()
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("outbox out of reach", reason=str(error))
                pause = FIRST_PAUSE
            try:
                await asyncio.wait_for(self._woken.wait(), pause)
            except TimeoutError:
                continue
            self._woken.clear()

    async def send_due(self) -> int:
        """One round: what is due now, so many at a time. How many there were."""
        async with self._pool.transaction() as connection:
            due = await Outbox(connection).take(list(self._channels), self._clock(), MAX_CONCURRENT)
        await asyncio.gather(*map(self._send, due))
        return len(due)

    async def sweep(self) -> int:
        """Delete notes that are too old; how many there were."""
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
            outcome = PushOutcome(PushStatus.REFUSED, "it is no longer worth telling")
        else:
            outcome = await self._channels[push.channel].send(push)
        async with self._pool.transaction() as connection:
            await self._settle(Outbox(connection), push, outcome)

    async def _settle(self, outbox: Outbox, push: PushMessage, outcome: PushOutcome) -> None:
        now = self._clock()
        match outcome.fate:
            case PushStatus.SENT:
                self.figures.sent += 1
                await outbox.settle(push, "sent", now)
                await outbox.used(push.endpoint_id, now)
            case PushStatus.GONE:
                self.figures.gone += 1
                log.info("device gone", endpoint=push.endpoint_id, reason=outcome.reason)
                await outbox.forget(push.endpoint_id)
            case PushStatus.AGAIN if push.attempts < MAX_ATTEMPTS:
                self.figures.again += 1
                again = now + timedelta(seconds=outcome.after or retry_delay(push.attempts))
                await outbox.settle(push, "pending", now, outcome.reason, again)
                await outbox.failed(push.endpoint_id)
            case _:
                self.figures.refused += 1
                log.warning("push given up", push=push.id, reason=outcome.reason)
                expired = push.expires_at is not None and push.expires_at <= now
                await outbox.settle(push, "dropped" if expired else "failed", now, outcome.reason)

    async def _sweep_hourly(self) -> None:
        now = self._clock()
        if self._swept is None or now - self._swept >= SWEEP_EVERY:
            self._swept = now
            if gone := await self.sweep():
                log.info("old notes deleted", notes=gone)

    async def _pause(self) -> float:
        async with self._pool.reading() as connection:
            due = await Outbox(connection).next_due(list(self._channels))
        if due is None:
            return POLL_SECONDS
        return min(max((due - self._clock()).total_seconds(), 0.05), POLL_SECONDS)


def retry_delay(attempts: int) -> float:
    """Seconds to wait after so many attempts."""
    return float(min(FIRST_PAUSE * 2 ** (attempts - 1), LONGEST_PAUSE))
