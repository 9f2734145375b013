"""The weekly report of a business: on the page, and by mail on Monday mornings.

A week is Monday to Sunday by the local days of each place. It is compared with the week before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from penstock.core.logs import get_logger
from penstock.core.retry import run_regularly
from penstock_hives.analytics.insight_texts import translate_insight
from penstock_hives.analytics.models import Insight
from penstock_hives.database import DatabasePool
from penstock_hives.identity.mail import MailSender, text_mail
from penstock_hives.translation import format_day, format_number, translate

log = get_logger(__name__)

WEEK: Final = timedelta(days=7)
#: Local hour of Monday from which the report is sent.
HOUR: Final = 7
CHECK_SECONDS: Final = 600.0
_HIVES: Final = """
    SELECT h.name, coalesce(sum(k.visits) FILTER (WHERE k.day >= %(week)s), 0) AS visits,
           coalesce(sum(k.visits) FILTER (WHERE k.day < %(week)s), 0) AS visits_before,
           avg(k.mean_percent) FILTER (WHERE k.day >= %(week)s) AS mean_percent,
           (array_agg(k.day ORDER BY k.visits DESC) FILTER (WHERE k.day >= %(week)s))[1] AS busiest
    FROM hive h LEFT JOIN kpi_day k ON k.hive_id = h.id
        AND k.day >= %(week)s::date - 7 AND k.day < %(week)s::date + 7
    WHERE h.account_id = %(account)s AND h.status = 'active'
    GROUP BY h.id ORDER BY h.id
"""
_FEEDBACK: Final = """
    SELECT coalesce(sum(f.messages), 0) AS messages, coalesce(sum(f.positive), 0) AS positive,
           coalesce(sum(f.negative), 0) AS negative
    FROM feedback_day f JOIN hive h ON h.id = f.hive_id AND h.account_id = %(account)s
    WHERE f.day >= %(week)s AND f.day < %(week)s::date + 7
"""
_REDEEMED: Final = """
    SELECT count(*) AS redeemed FROM deal_event e
    JOIN deal d ON d.id = e.deal_id JOIN hive h ON h.id = d.hive_id AND h.account_id = %(account)s
    WHERE e.kind = 'redeemed' AND (e.at AT TIME ZONE h.time_zone)::date >= %(week)s
      AND (e.at AT TIME ZONE h.time_zone)::date < %(week)s::date + 7
"""
_INSIGHTS: Final = """
    SELECT id, hive_id, kind, day, title, body, weight, data FROM insight
    WHERE account_id = %(account)s AND day >= %(week)s AND day <= %(week)s::date + 7
    ORDER BY weight DESC, id LIMIT 5
"""
#: Businesses where it is Monday morning, whose report of last week was not mailed.
_DUE: Final = """
    SELECT a.id, a.name, (date_trunc('week', %(now)s AT TIME ZONE a.time_zone) - interval '7 days')
               ::date AS week
    FROM account a
    WHERE a.status = 'active'
      AND extract(isodow FROM %(now)s AT TIME ZONE a.time_zone) = 1
      AND extract(hour FROM %(now)s AT TIME ZONE a.time_zone) >= %(hour)s
      AND EXISTS (SELECT FROM hive h WHERE h.account_id = a.id AND h.status = 'active')
      AND NOT EXISTS (
          SELECT FROM weekly_report_mail m WHERE m.account_id = a.id AND m.week
              = (date_trunc('week', %(now)s AT TIME ZONE a.time_zone) - interval '7 days')::date)
    ORDER BY a.id
"""
_EVENTS: Final = (
    "{redeemed} deals redeemed; {messages} messages, {positive} positive, {negative} negative"
)
_RECIPIENTS: Final = """
    SELECT c.login, u.locale FROM account_member m
    JOIN app_user u ON u.id = m.user_id AND u.deleted_at IS NULL
    JOIN credential c ON c.uid = u.firebase_uid
    WHERE m.account_id = %s AND m.weekly_report ORDER BY c.login
"""


@dataclass(frozen=True, slots=True)
class ReportedHive:
    name: str
    visits: int
    visits_before: int
    mean_percent: float | None
    busiest: date | None

    @property
    def change(self) -> float | None:
        return self.visits / self.visits_before - 1 if self.visits_before else None


@dataclass(frozen=True, slots=True)
class WeeklyReport:
    week: date  #: its Monday
    hives: tuple[ReportedHive, ...]
    messages: int
    positive: int
    negative: int
    redeemed: int
    insights: tuple[Insight, ...]

    @property
    def visits(self) -> int:
        return sum(hive.visits for hive in self.hives)

    @property
    def change(self) -> float | None:
        before = sum(hive.visits_before for hive in self.hives)
        return self.visits / before - 1 if before else None


def monday_before(day: date) -> date:
    """Of the last week that is over."""
    return day - timedelta(days=day.weekday() + 7)


async def read_report(pool: DatabasePool, account: int, week: date) -> WeeklyReport:
    given = {"account": account, "week": week}
    async with pool.reading() as connection:
        hives = await (await connection.execute(_HIVES, given)).fetchall()
        feedback = await (await connection.execute(_FEEDBACK, given)).fetchone() or {}
        redeemed = await (await connection.execute(_REDEEMED, given)).fetchone() or {"redeemed": 0}
        insights = await (await connection.execute(_INSIGHTS, given)).fetchall()
    return WeeklyReport(
        week,
        tuple(ReportedHive(**row) for row in hives),
        **feedback,
        redeemed=redeemed["redeemed"],
        insights=tuple(Insight(**row) for row in insights),
    )


def report_text(name: str, report: WeeklyReport, link: str, locale: str = "en") -> str:
    """The mail."""
    last = report.week + timedelta(days=6)

    def number(value: int) -> str:
        return format_number(value, locale)

    begin, end = format_day(report.week, locale), f"{format_day(last, locale)} {last.year}"
    visits = translate("{visits} visits", locale, visits=number(report.visits))
    lines = [
        translate("{name}, {begin} to {end}", locale, name=name, begin=begin, end=end),
        "",
        f"{visits}{_change(report.change, locale)}",
        translate(
            _EVENTS,
            locale,
            redeemed=number(report.redeemed),
            messages=number(report.messages),
            positive=number(report.positive),
            negative=number(report.negative),
        ),
        "",
        *(
            f"{_one_line(hive.name)}: {number(hive.visits)}{_change(hive.change, locale)}"
            for hive in report.hives
        ),
        "",
        *("* " + ": ".join(translate_insight(each, locale)) for each in report.insights),
        "",
        link,
    ]
    return "\n".join(lines) + "\n"


def _change(share: float | None, locale: str) -> str:
    if share is None:
        return ""
    change = format_number(100 * share, locale, "+.0f")
    return " " + translate("({change}% against the week before)", locale, change=change)


def _one_line(text: str) -> str:
    return " ".join(text.split())


class WeeklyReportMailer:
    """Cancel `run` to end it."""

    def __init__(
        self,
        pool: DatabasePool,
        mail: MailSender,
        sender: str,
        link: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pool = pool
        self._mail = mail
        self._sender = sender
        self._link = link
        self._clock = clock

    async def run(self) -> None:
        await run_regularly(
            self.send_due,
            CHECK_SECONDS,
            lambda error: log.warning("weekly reports not sent", reason=str(error)),
        )

    async def send_due(self) -> int:
        """Returns the number of mails."""
        now, sent = self._clock(), 0
        for row in await self._pool.rows(_DUE, {"now": now, "hour": HOUR}):
            members = await self._pool.rows(_RECIPIENTS, (row["id"],))
            recipients = [(each["login"], each["locale"]) for each in members]
            marked = await self._pool.execute(
                "INSERT INTO weekly_report_mail (account_id, week, recipients, sent_at) "
                "VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (row["id"], row["week"], len(recipients), now),
            )
            if not marked:  # another process sends it
                continue
            report = await read_report(self._pool, row["id"], row["week"])
            sent += await self._send(row["name"], row["id"], report, recipients)
        return sent

    async def _send(
        self, name: str, account: int, report: WeeklyReport, recipients: Sequence[tuple[str, str]]
    ) -> int:
        name, link = _one_line(name), f"{self._link}?account={account}"
        for login, locale in recipients:
            week = format_day(report.week, locale)
            subject = translate("{name}: the week of {day}", locale, name=name, day=week)
            text = report_text(name, report, link, locale)
            try:
                await self._mail.send(text_mail(self._sender, login, subject, text))
            except OSError as error:
                log.error("mail not sent", reason=str(error))
        return len(recipients)
