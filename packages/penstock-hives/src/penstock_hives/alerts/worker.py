"""The process of alerts: receives occupancy and changes, evaluates them, sends the notifications.

One task owns the evaluator. Other tasks only add to its input: a report replaces an older one of
the same hive, a changed definition is noted by its id, so the input is bounded. Once a minute, and
after each reconnect, the current state of all hives is evaluated. That covers missed messages,
because a report is a state and not a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.errors import WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy, is_transient
from penstock_hives.alerts.evaluator import AlertEvaluator
from penstock_hives.alerts.matcher import OccupancyReport
from penstock_hives.analytics.weekly_report import WeeklyReportMailer
from penstock_hives.database import DatabasePool
from penstock_hives.identity.mail import MailSender
from penstock_hives.live.subscriber import OccupancySubscriber
from penstock_hives.push.models import PushChannel
from penstock_hives.push.sender import PushSender
from penstock_hives.push.settings import PushSettings, open_channels
from penstock_hives.sensors.health import SensorHealthMonitor
from penstock_hives.webhooks.sender import WebhookSender
from penstock_store.database import describe_url

log = get_logger(__name__)

#: Between two evaluations of all hives and deals.
POLL_SECONDS: Final = 60.0
_RETRY: Final = RetryPolicy.fixed(2.0)
DEFINITIONS: Final = "notification_def"
DEALS: Final = "deal"
DELIVERIES: Final = "notification_delivery"


class AlertWorker:
    """Cancel `run` to end it."""

    def __init__(
        self,
        evaluator: AlertEvaluator,
        sender: PushSender,
        database: str,
        brokers: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        more: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        on_occupancy: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """`more` runs beside the evaluation; `on_occupancy` gets every valid figure."""
        self._more = more
        self._observe = on_occupancy
        self.ready = asyncio.Event()  #: definitions are loaded and hives were evaluated once
        self._evaluator = evaluator
        self._sender = sender
        self._database = database
        self._brokers = brokers
        self._clock = clock
        self._wake_up = asyncio.Event()
        self._reports: dict[int, OccupancyReport] = {}
        self._changed: set[int] = set()
        self._reload = True
        self._poll_at = 0.0

    async def run(self) -> None:
        channels = (DEFINITIONS, DEALS, DELIVERIES)
        listener = NotifyListener(self._database, channels, self._on_notify, self._on_connect)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run(), name="listener")
            tasks.create_task(self._sender.run(), name="sender")
            if self._brokers:
                tasks.create_task(
                    OccupancySubscriber(self._brokers, self._on_occupancy).run(), name="occupancy"
                )
            for number, work in enumerate(self._more):
                tasks.create_task(work(), name=f"task {number}")
            tasks.create_task(self._evaluate(), name="evaluator")

    def _on_occupancy(self, document: Any) -> None:
        try:
            report = OccupancyReport.of(document)
        except WireSyntaxError as error:
            log.warning("occupancy message invalid", reason=str(error))
            return
        self._observe(document)
        known = self._reports.get(report.hive_id)
        if known is None or known.version < report.version:
            self._reports[report.hive_id] = report
            self._wake_up.set()

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == DELIVERIES:
            self._sender.wake()
            return
        if channel == DEFINITIONS and payload.isdecimal():
            self._changed.add(int(payload))
        else:
            self._poll_at = 0.0
        self._wake_up.set()

    def _on_connect(self) -> None:
        """Notifications may have been missed: read everything again."""
        self._reload = True
        self._poll_at = 0.0
        self._sender.wake()
        self._wake_up.set()

    async def _evaluate(self) -> None:
        while True:
            self._wake_up.clear()
            try:
                await self._evaluate_input()
                pause = max(0.0, self._poll_at - self._clock())
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("alert evaluation failed", reason=str(error))
                self._reload = True
                self._poll_at = 0.0
                await asyncio.sleep(_RETRY.delay(1))
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake_up.wait(), pause)

    async def _evaluate_input(self) -> None:
        if self._reload:
            self._reload = False
            self._changed.clear()
            await self._evaluator.load()
        if self._changed:
            changed, self._changed = self._changed, set()
            await self._evaluator.refresh(changed)
        if self._reports:
            reports, self._reports = self._reports, {}
            await self._evaluator.evaluate(reports.values())
        if self._clock() >= self._poll_at:
            self._poll_at = self._clock() + POLL_SECONDS
            await self._evaluator.catch_up()
            await self._evaluator.evaluate_deals()
            self.ready.set()


CONNECT_SECONDS: Final = 10
#: A dead server is detected within a minute.
_KEEPALIVE: Final[dict[str, Any]] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class NotifyListener:
    """LISTEN on one connection; cancel `run` to end it.

    Notifications during an outage are lost: `on_connect` is called after each reconnect, so that
    the owner can read its data again.
    """

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        on_notify: Callable[[str, str], None],
        on_connect: Callable[[], None],
    ) -> None:
        self._url = url
        self._channels = channels
        self._on_notify = on_notify
        self._on_connect = on_connect

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.OperationalError as error:
                reason = str(error).partition("\n")[0]
                log.warning(
                    "notify listener disconnected", at=describe_url(self._url), reason=reason
                )
            await asyncio.sleep(_RETRY.delay(1))

    async def _listen(self) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, **_KEEPALIVE
        ) as connection:
            for channel in self._channels:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            self._on_connect()
            async for notice in connection.notifies():
                self._on_notify(notice.channel, notice.payload)


#: One for the evaluator, the others for the results of pushes.
CONNECTIONS: Final = 6
#: A transaction may change two thousand definitions.
STATEMENT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class BusinessMail:
    """How businesses are told of their sensors and their week."""

    mail: MailSender
    sender: str
    dashboards: str  #: URL, for links
    lake: Path | None = None  #: for lost messages


@asynccontextmanager
async def open_alert_worker(
    database: str,
    brokers: Sequence[str],
    settings: PushSettings,
    *,
    production: bool = False,
    channels: Mapping[str, PushChannel] | None = None,
    business: BusinessMail | None = None,
) -> AsyncIterator[AlertWorker]:
    """A worker to `run`. Without brokers it evaluates the database once a minute. With `business`
    it also checks sensors, mails weekly reports and sends webhooks."""
    reached = open_channels(settings, production=production) if channels is None else channels
    async with DatabasePool(database, CONNECTIONS, 10.0, STATEMENT_SECONDS) as pool:
        sender = PushSender(pool, reached)
        evaluator = AlertEvaluator(pool, cap=settings.daily_cap)
        webhooks = WebhookSender(pool, production=production)
        try:
            if business is None:
                yield AlertWorker(evaluator, sender, database, brokers)
                return
            mail = (business.mail, business.sender)
            link = business.dashboards.rstrip("/")
            sensors = SensorHealthMonitor(pool, *mail, f"{link}/hives/sensors/", business.lake)
            reports = WeeklyReportMailer(pool, *mail, f"{link}/hives/report")
            yield AlertWorker(
                *(evaluator, sender, database, brokers),
                more=(sensors.run, reports.run, webhooks.run),
                on_occupancy=webhooks.on_occupancy,
            )
        finally:
            await webhooks.close()
            await sender.close()
