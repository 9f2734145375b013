"""Alerts about sensors: low battery, weak signal, silence, drift of the count, lost messages.

An alert begins when a limit is passed and ends when the value is well within it again, so a value
near the limit causes one alert. Members of the business who want them get a notification in inbox
and devices, and a mail; webhooks get both ends. All of it is in the transaction of the alert,
except the mail, which is sent after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock.core.retry import run_regularly
from penstock_hives.database import Connection, DatabasePool, fetch_all, insert_row
from penstock_hives.identity.mail import MailSender, text_mail
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox
from penstock_hives.translation import format_number, translate
from penstock_hives.webhooks.service import WebhookEvent, enqueue_event

log = get_logger(__name__)

CHECK_SECONDS: Final = 60.0
#: Seconds between two reads of the lake.
LOST_SECONDS: Final = 900.0
KIND: Final = "sensor_alert"
#: Begin and end of an alert.
BATTERY_MV: Final = (3300, 3450)
SIGNAL_DBM: Final = (-115, -110)
#: Nightly corrections of a hive, in people and as a share of its visits.
DRIFT_PEOPLE: Final = 8.0
DRIFT_SHARE: Final = 0.08
#: Messages lost in a day, and as a share of those expected.
LOST_MESSAGES: Final = 10
LOST_SHARE: Final = 0.10

_DRIFT: Final = (
    "the count of {hive} is corrected by {people} people a night: one of its sensors misses people"
)
_LOST: Final = "{lost} of {expected} messages of a day were lost"
_FACTS: Final = """
    WITH drift AS (
        SELECT o.hive_id, avg(abs(o.correction)) AS people, avg(k.visits) AS visits
        FROM hive_offset o
        JOIN hive h ON h.id = o.hive_id
        JOIN kpi_day k ON k.hive_id = o.hive_id
            AND k.day = (o.at AT TIME ZONE h.time_zone)::date - 1
        WHERE o.cause = 'nightly' AND o.at > %(now)s - interval '7 days'
        GROUP BY 1 HAVING count(*) >= 3
    )
    SELECT s.id, s.serial, s.name, h.id AS hive_id, h.name AS hive, h.account_id,
           u.battery_mv, u.signal_dbm, drift.people::float8 AS drift_people,
           drift.visits::float8 AS drift_visits,
           s.id = min(s.id) OVER (PARTITION BY h.id) AS is_first,
           greatest(t.received_at, u.received_at) AS last_seen_at,
           2 * interval '1 minute' * coalesce(
               CASE s.protocol WHEN 'event' THEN c.status_interval_min
                               ELSE c.report_interval_min END,
               CASE s.protocol WHEN 'event' THEN 360 ELSE 30 END) AS patience
    FROM sensor s
    JOIN hive h ON h.id = s.hive_id AND h.status = 'active'
    LEFT JOIN sensor_state t ON t.sensor_id = s.id
    LEFT JOIN sensor_status u ON u.sensor_id = s.id
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    LEFT JOIN drift ON drift.hive_id = h.id
    WHERE s.state = 'active'
"""
_OPEN: Final = "SELECT id, sensor_id, kind FROM sensor_alert WHERE ended_at IS NULL"
_MEMBERS: Final = """
    SELECT m.account_id, m.user_id, u.locale, c.login FROM account_member m
    JOIN app_user u ON u.id = m.user_id AND u.deleted_at IS NULL
    LEFT JOIN credential c ON c.uid = u.firebase_uid
    WHERE m.sensor_alerts AND m.account_id = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class SensorFacts:
    """What an evaluation knows of a sensor."""

    id: int
    serial: str
    name: str
    hive_id: int
    hive: str
    account_id: int
    battery_mv: int | None
    signal_dbm: int | None
    drift_people: float | None  #: of its hive
    drift_visits: float | None
    is_first: bool  #: of its hive: alerts about the hive are about this one
    last_seen_at: datetime | None
    patience: timedelta  #: until it is silent
    lost: int = 0  #: messages of the last day, by their numbers
    received: int = 0  #: messages of the last day


@dataclass(frozen=True, slots=True)
class SensorAlert:
    id: int
    sensor_id: int
    kind: str
    detail: str
    since: datetime
    ended_at: datetime | None


def alert_title(kind: str, locale: str = "en") -> str:
    titles = {
        "battery": translate("Battery low", locale),
        "signal": translate("Signal weak", locale),
        "silence": translate("No data", locale),
        "drift": translate("Count drifts", locale),
        "lost": translate("Messages lost", locale),
    }
    return titles[kind]


def evaluate(facts: SensorFacts, now: datetime, locale: str = "en") -> dict[str, str | None]:
    """Kind → what is wrong, or None if it is right again; kinds in between are left out."""
    found: dict[str, str | None] = {}
    if facts.battery_mv is not None:
        low, well = BATTERY_MV
        if facts.battery_mv < low:
            volts = format_number(facts.battery_mv / 1000, locale, ".2f")
            found["battery"] = translate(
                "{volts} V: change or charge the battery", locale, volts=volts
            )
        elif facts.battery_mv >= well:
            found["battery"] = None
    if facts.signal_dbm is not None:
        low, well = SIGNAL_DBM
        if facts.signal_dbm < low:
            found["signal"] = translate(
                "{signal} dBm: move it closer to a window", locale, signal=facts.signal_dbm
            )
        elif facts.signal_dbm >= well:
            found["signal"] = None
    if facts.last_seen_at is not None:
        silent = now - facts.last_seen_at
        minutes = int(facts.patience.total_seconds() // 60)
        text = translate("no data for more than {minutes} min", locale, minutes=minutes)
        found["silence"] = text if silent > facts.patience else None
    if facts.drift_people is not None and facts.is_first:
        limit = max(DRIFT_PEOPLE, DRIFT_SHARE * (facts.drift_visits or 0))
        if facts.drift_people > limit:
            people = f"{facts.drift_people:.0f}"
            found["drift"] = translate(_DRIFT, locale, hive=facts.hive, people=people)
        elif facts.drift_people < limit / 2:
            found["drift"] = None
    if facts.received:
        expected = facts.lost + facts.received
        if facts.lost >= LOST_MESSAGES and facts.lost / expected >= LOST_SHARE:
            found["lost"] = translate(_LOST, locale, lost=facts.lost, expected=expected)
        elif facts.lost < LOST_MESSAGES / 2:
            found["lost"] = None
    return found


class SensorHealthMonitor:
    """Cancel `run` to end it."""

    def __init__(
        self,
        pool: DatabasePool,
        mail: MailSender,
        sender: str,
        link: str,
        lake: Path | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`link` is the page of a sensor; its id is appended."""
        self._pool = pool
        self._mail = mail
        self._sender = sender
        self._link = link
        self._lake = lake
        self._clock = clock
        self._lost: Mapping[str, tuple[int, int]] = {}
        self._lost_at: datetime | None = None

    async def run(self) -> None:
        await run_regularly(
            self.check,
            CHECK_SECONDS,
            lambda error: log.warning("sensors not checked", reason=str(error)),
        )

    async def check(self) -> int:
        """Begin and end alerts; returns how many began."""
        now = self._clock()
        await self._count_lost(now)
        async with self._pool.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (0x6865616C,))
            rows = await (await connection.execute(_FACTS, {"now": now})).fetchall()
            open_alerts = {
                (row["sensor_id"], row["kind"]): row["id"]
                async for row in await connection.execute(_OPEN)
            }
            began: list[tuple[SensorFacts, str, str]] = []
            for row in rows:
                lost, received = self._lost.get(row["serial"], (0, 0))
                facts = SensorFacts(**row, lost=lost, received=received)
                for kind, detail in evaluate(facts, now).items():
                    known = open_alerts.get((facts.id, kind))
                    if detail is not None and known is None:
                        await self._begin(connection, facts, kind, detail, now)
                        began.append((facts, kind, detail))
                    elif detail is None and known is not None:
                        await self._end(connection, facts, kind, known, now)
            mails = await self._notify(connection, began, now)
        for message in mails:
            try:
                await self._mail.send(message)
            except OSError as error:
                log.error("mail not sent", reason=str(error))
        return len(began)

    async def _begin(
        self, connection: Connection, facts: SensorFacts, kind: str, detail: str, now: datetime
    ) -> None:
        values = {"sensor_id": facts.id, "kind": kind, "detail": detail, "since": now}
        await insert_row(connection, "sensor_alert", values)
        await enqueue_event(
            connection, facts.account_id, WebhookEvent.SENSOR_ALERT, _document(facts, kind, detail)
        )

    async def _end(
        self, connection: Connection, facts: SensorFacts, kind: str, alert: int, now: datetime
    ) -> None:
        await connection.execute(
            "UPDATE sensor_alert SET ended_at = %s WHERE id = %s", (now, alert)
        )
        await enqueue_event(
            connection, facts.account_id, WebhookEvent.SENSOR_ALERT, _document(facts, kind, None)
        )

    async def _notify(
        self, connection: Connection, began: Sequence[tuple[SensorFacts, str, str]], now: datetime
    ) -> list[Any]:
        """Notifications for members; returns a mail for each, with all alerts."""
        if not began:
            return []
        accounts = list({facts.account_id for facts, _, _ in began})
        members = await (await connection.execute(_MEMBERS, (accounts,))).fetchall()
        mails = []
        for member in members:
            user, locale = member["user_id"], member["locale"]
            mine = [
                (facts, kind, f"{alert_title(kind, locale)}: {_name(facts)}", detail)
                for facts, kind, detail in _in_language(began, now, locale)
                if facts.account_id == member["account_id"]
            ]
            await Outbox(connection).add(
                [
                    Notification(
                        *(user, KIND, title, detail),
                        f"{user}:{KIND}:{facts.id}:{kind}:{now.date()}",
                        hive_id=facts.hive_id,
                        expires_at=now + timedelta(days=1),
                        push_at=now,
                    )
                    for facts, kind, title, detail in mine
                ]
            )
            if member["login"] is not None:
                lines = [
                    f"{title}, {detail}.\n    {self._link}{facts.id}"
                    for facts, _, title, detail in mine
                ]
                subject = mine[0][2]
                if len(mine) > 1:
                    subject = translate("{count} alerts about sensors", locale, count=len(mine))
                mails.append(
                    text_mail(self._sender, member["login"], subject, "\n\n".join(lines) + "\n")
                )
        return mails

    async def _count_lost(self, now: datetime) -> None:
        if self._lake is None:
            return
        if self._lost_at is None or (now - self._lost_at).total_seconds() >= LOST_SECONDS:
            self._lost_at = now
            try:
                self._lost = await asyncio.to_thread(count_lost_messages, self._lake, now)
            except OSError as error:
                log.warning("lake not read", reason=str(error))


def _in_language(
    began: Sequence[tuple[SensorFacts, str, str]], now: datetime, locale: str
) -> list[tuple[SensorFacts, str, str]]:
    return [
        (facts, kind, evaluate(facts, now, locale)[kind] or detail) for facts, kind, detail in began
    ]


def _name(facts: SensorFacts) -> str:
    return facts.name or f"{facts.hive}, {facts.serial}"


def _document(facts: SensorFacts, kind: str, detail: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "state": "ended" if detail is None else "began",
        "detail": detail or "",
        "sensor": {"id": facts.id, "serial": facts.serial, "name": facts.name},
        "hive": {"id": facts.hive_id, "name": facts.hive},
    }


def count_lost_messages(lake: Path, now: datetime) -> dict[str, tuple[int, int]]:
    """By serial: messages lost and received in the last day, by the numbers of the messages."""
    import pyarrow.compute as pc

    from penstock_spark.lake import Lake, StorageLocation

    table = Lake.open(StorageLocation.parse(lake), "hives").table("silver.reports")
    if not table.exists():
        return {}
    begin = now - timedelta(days=1)
    found: dict[str, list[int]] = {}
    days = begin.astimezone(UTC).date(), now.astimezone(UTC).date()
    for file in table.files(day=days, received_at=(begin, now)):
        rows = table.read_file(file, ["sensor", "missed", "received_at"]).filter(
            (pc.field("received_at") >= begin) & (pc.field("received_at") < now)
        )
        for row in (
            rows.group_by("sensor").aggregate([("missed", "sum"), ([], "count_all")]).to_pylist()
        ):
            counted = found.setdefault(row["sensor"], [0, 0])
            counted[0] += row["missed_sum"] or 0
            counted[1] += row["count_all"]
    return {serial: (lost, received) for serial, (lost, received) in found.items()}


_RECENT: Final = """
    SELECT a.id, a.sensor_id, a.kind, a.detail, a.since, a.ended_at FROM sensor_alert a
    JOIN sensor s ON s.id = a.sensor_id JOIN hive h ON h.id = s.hive_id
    WHERE h.account_id = %(account)s
      AND (%(sensor)s::bigint IS NULL OR a.sensor_id = %(sensor)s)
    ORDER BY a.ended_at IS NOT NULL, a.id DESC LIMIT %(limit)s
"""


async def recent_alerts(
    pool: DatabasePool, account: int, sensor: int | None, limit: int
) -> list[SensorAlert]:
    """Open ones first; the caller has checked the permission."""
    given = {"account": account, "sensor": sensor, "limit": limit}
    async with pool.reading() as connection:
        return await fetch_all(connection, SensorAlert, _RECENT, given)
