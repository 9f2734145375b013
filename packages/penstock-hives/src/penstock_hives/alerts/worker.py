"""The process of alerts: hears figures and changes, has them judged, and sends what came of it.

One task owns the evaluator. Others only leave word for it: a figure replaces an older one of the
same hive, a definition that changed is noted by its id, so what waits is bounded by what there is.
Once a minute, and whenever a connection was made anew, all hives are judged as they stand:
whatever was missed is in that, for a figure says how a place stands and never a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.errors import WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock_hives.alerts.evaluator import AlertEvaluator
from penstock_hives.alerts.matcher import OccupancyReport
from penstock_hives.database import DatabasePool
from penstock_hives.live.subscriber import OccupancySubscriber
from penstock_hives.push.models import PushChannel
from penstock_hives.push.sender import PushSender
from penstock_hives.push.settings import PushSettings, open_channels
from penstock_store.database import describe_url

log = get_logger(__name__)

#: All hives as they stand, and deals that are due, so often, in seconds.
POLL_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0
DEFINITIONS: Final = "notification_def"
DEALS: Final = "deal"
DELIVERIES: Final = "notification_delivery"


class AlertWorker:
    """Owned by one task: cancel `run` to end it."""

    def __init__(
        self,
        evaluator: AlertEvaluator,
        sender: PushSender,
        database: str,
        brokers: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ready = asyncio.Event()  #: definitions are loaded, hives were judged once
        self._evaluator = evaluator
        self._sender = sender
        self._database = database
        self._brokers = brokers
        self._clock = clock
        self._woken = asyncio.Event()
        self._figures: dict[int, OccupancyReport] = {}
        self._changed: set[int] = set()
        self._reload = True
        self._look_at = 0.0

    async def run(self) -> None:
        channels = (DEFINITIONS, DEALS, DELIVERIES)
        listener = NotifyListener(self._database, channels, self._word, self._connected)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run(), name="listener")
            tasks.create_task(self._sender.run(), name="sender")
            if self._brokers:
                tasks.create_task(
                    OccupancySubscriber(self._brokers, self._heard).run(), name="figures"
                )
            tasks.create_task(self._judge(), name="evaluator")

    def _heard(self, document: Any) -> None:
        try:
            figure = OccupancyReport.of(document)
        except WireSyntaxError as error:
            log.warning("no figure", reason=str(error))
            return
        known = self._figures.get(figure.hive_id)
        if known is None or known.version < figure.version:
            self._figures[figure.hive_id] = figure
            self._woken.set()

    def _word(self, channel: str, payload: str) -> None:
        if channel == DELIVERIES:
            self._sender.wake()
            return
        if channel == DEFINITIONS and payload.isdecimal():
            self._changed.add(int(payload))
        else:
            self._look_at = 0.0
        self._woken.set()

    def _connected(self) -> None:
        """What was said before is unknown: everything anew."""
        self._reload = True
        self._look_at = 0.0
        self._sender.wake()
        self._woken.set()

    async def _judge(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._round()
                pause = max(0.0, self._look_at - self._clock())
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("alerts wait", reason=str(error))
                self._reload = True
                self._look_at = 0.0
                await asyncio.sleep(RETRY_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    async def _round(self) -> None:
        """What has been left word of, and what is due."""
        if self._reload:
            self._reload = False
            self._changed.clear()
            await self._evaluator.load()
        if self._changed:
            changed, self._changed = self._changed, set()
            await self._evaluator.refresh(changed)
        if self._figures:
            figures, self._figures = self._figures, {}
            await self._evaluator.judge(figures.values())
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + POLL_SECONDS
            await self._evaluator.catch_up()
            await self._evaluator.judge_deals()
            self.ready.set()


# Word of changes from the database, as they are committed (LISTEN/NOTIFY).
#
# What was said while there was no connection is lost: `connected` is called each time there is one
# again, and whoever keeps a copy of something reads all of it then.

RECONNECT_SECONDS: Final = 2.0
CONNECT_SECONDS: Final = 10
#: A server that vanished without a word is noticed within a minute.
_ALIVE: Final[dict[str, Any]] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class NotifyListener:
    """One connection that listens. Owned by one task: cancel `run` to end it."""

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        heard: Callable[[str, str], None],
        connected: Callable[[], None],
    ) -> None:
        self._url = url
        self._channels = channels
        self._heard = heard
        self._connected = connected

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.OperationalError as error:
                reason = str(error).partition("\n")[0]
                log.warning("no word from the database", at=describe_url(self._url), reason=reason)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, **_ALIVE
        ) as connection:
            for channel in self._channels:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            self._connected()
            async for notice in connection.notifies():
                self._heard(notice.channel, notice.payload)


# The process of alerts, put together: evaluator, sender, and what they listen to.

#: Connections: one judges, the others say what became of pushes.
CONNECTIONS: Final = 6
#: A transaction may turn two thousand definitions.
STATEMENT_SECONDS: Final = 60.0


@asynccontextmanager
async def open_alert_worker(
    database: str,
    brokers: Sequence[str],
    settings: PushSettings,
    *,
    production: bool = False,
    channels: Mapping[str, PushChannel] | None = None,
) -> AsyncIterator[AlertWorker]:
    """One to `run`. Without brokers hives are judged once a minute, by the database."""
    reached = open_channels(settings, production=production) if channels is None else channels
    async with DatabasePool(database, CONNECTIONS, 10.0, STATEMENT_SECONDS) as pool:
        sender = PushSender(pool, reached)
        try:
            yield AlertWorker(
                AlertEvaluator(pool, cap=settings.daily_cap), sender, database, brokers
            )
        finally:
            await sender.close()
