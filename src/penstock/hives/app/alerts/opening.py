"""The process of alerts, put together: evaluator, sender, and what they listen to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.hives.app.alerts.evaluator import Evaluator
from penstock.hives.app.alerts.watch import Watch
from penstock.hives.app.push.notes import Channel
from penstock.hives.app.push.sender import Sender
from penstock.hives.app.push.settings import PushSettings, open_channels
from penstock.hives.app.repositories.pool import Pool

#: Connections: one judges, the others say what became of pushes.
CONNECTIONS: Final = 6
#: A transaction may turn two thousand definitions.
STATEMENT_SECONDS: Final = 60.0


@asynccontextmanager
async def open_watch(
    database: str,
    brokers: Sequence[str],
    settings: PushSettings,
    *,
    production: bool = False,
    channels: Mapping[str, Channel] | None = None,
) -> AsyncIterator[Watch]:
    """One to `run`. Without brokers hives are judged once a minute, by the database."""
    reached = open_channels(settings, production=production) if channels is None else channels
    async with Pool(database, CONNECTIONS, 10.0, STATEMENT_SECONDS) as pool:
        sender = Sender(pool, reached)
        try:
            yield Watch(Evaluator(pool, cap=settings.daily_cap), sender, database, brokers)
        finally:
            await sender.close()
