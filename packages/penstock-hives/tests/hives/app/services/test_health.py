"""Alerts about sensors, weekly reports and webhooks: what begins, ends, is sent and is refused."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage

import httpx
import pytest

from penstock.core.errors import AccessRefused, NotFound
from penstock_hives.analytics.weekly_report import WeeklyReportMailer, monday_before, read_report
from penstock_hives.errors import InvalidRequest, TooManyRequests
from penstock_hives.people.permissions import Caller, UserRole
from penstock_hives.resources import Resources, open_resources
from penstock_hives.sensors.health import SensorFacts, SensorHealthMonitor, evaluate, recent_alerts
from penstock_hives.settings import HivesSettings
from penstock_hives.webhooks.sender import MAX_ATTEMPTS, MAX_FAILURES, WebhookSender
from penstock_hives.webhooks.service import (
    MAX_TESTS,
    WebhookEvent,
    WebhookService,
    enqueue_event,
)
from penstock_store import Database
from tests.hives.app.world import NOON, Hands, Names, Post

FURNISH = """
    DELETE FROM app_user; DELETE FROM credential; DELETE FROM sensor; DELETE FROM webhook;
    DELETE FROM kpi_day; DELETE FROM weekly_report_mail; DELETE FROM hive; DELETE FROM account;
    INSERT INTO account (id, name, time_zone)
    VALUES (1, 'Comb', 'Europe/Berlin'), (2, 'Wax', 'UTC');
    INSERT INTO hive_type (id, code, name) VALUES (1, 'bar', 'Bar') ON CONFLICT DO NOTHING;
    INSERT INTO hive (id, account_id, hive_type_id, name, time_zone)
    VALUES (1, 1, 1, 'The Comb', 'Europe/Berlin'), (2, 2, 1, 'The Wax', 'UTC');
    INSERT INTO app_user (id, firebase_uid) VALUES (1, 'u1'), (2, 'u2');
    INSERT INTO credential (uid, login, password_hash) VALUES ('u1', 'ada@example.org', 'x');
    INSERT INTO account_member (account_id, user_id, role) VALUES (1, 1, 'account_admin');
    INSERT INTO sensor (id, serial, hive_id, name) VALUES (1, 's1', 1, 'main door');
    INSERT INTO sensor_state (sensor_id, received_at, at, batch)
    VALUES (1, '2026-03-02 11:00Z', '2026-03-02 11:00Z', 1);
    INSERT INTO sensor_status (sensor_id, received_at, battery_mv, signal_dbm)
    VALUES (1, '2026-03-02 11:00Z', 4000, -80);
"""
FACTS = SensorFacts(
    *(1, "s1", "main door", 1, "The Comb", 1, 4000, -80, None, None, True, NOON),
    timedelta(hours=1),
)


class Letters:
    def __init__(self) -> None:
        self.sent: list[EmailMessage] = []

    async def send(self, message: EmailMessage) -> None:
        self.sent.append(message)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
async def resources(database: Database, hands: Hands) -> AsyncIterator[Resources]:
    database.execute(FURNISH)
    settings = HivesSettings(database=database.url, pool_wait=60.0)
    async with open_resources(settings, Names(), broker=Post(), clock=hands) as resources:
        yield resources


@pytest.mark.parametrize(
    ("changed", "kind", "wrong"),
    [
        ({"battery_mv": 3299}, "battery", True),
        ({"battery_mv": 3450}, "battery", False),
        ({"signal_dbm": -116}, "signal", True),
        ({"signal_dbm": -110}, "signal", False),
        ({"last_seen_at": NOON - timedelta(minutes=61)}, "silence", True),
        ({}, "silence", False),
        ({"drift_people": 30.0, "drift_visits": 200.0}, "drift", True),
        ({"drift_people": 30.0, "drift_visits": 1000.0}, "drift", False),
        ({"lost": 12, "received": 80}, "lost", True),
        ({"lost": 12, "received": 800}, "lost", None),
        ({"lost": 2, "received": 8}, "lost", False),
        ({"battery_mv": 3400}, "battery", None),
        ({"drift_people": 30.0, "drift_visits": 10.0, "is_first": False}, "drift", None),
    ],
)
def test_limits_have_two_sides(changed: dict[str, object], kind: str, wrong: bool | None) -> None:
    found = evaluate(replace(FACTS, **changed), NOON)  # type: ignore[arg-type]
    if wrong is None:
        assert kind not in found
    else:
        assert (found[kind] is not None) is wrong


async def test_an_alert_begins_once_is_told_and_ends(
    resources: Resources, hands: Hands, database: Database
) -> None:
    letters = Letters()
    link = "https://hives.example/hives/sensors/"
    monitor = SensorHealthMonitor(resources.pool, letters, "no-reply@x", link, clock=hands)
    admin = Caller(1, "u1", UserRole.ACCOUNT_ADMIN, "business", memberships={1: ADMIN})
    hooks = WebhookService(resources.pool, hands)
    await hooks.add(admin, 1, "https://example.org/hook", [WebhookEvent.SENSOR_ALERT])
    assert await monitor.check() == 0

    hands.now += timedelta(hours=2)
    database.execute("UPDATE sensor_status SET battery_mv = 3000")
    database.execute("INSERT INTO push_endpoint (user_id, kind, address) VALUES (1, 'fcm', 'a')")
    assert await monitor.check() == 2
    assert await monitor.check() == 0
    [mail] = letters.sent
    assert mail["To"] == "ada@example.org"
    assert mail["Subject"] == "2 alerts about sensors"
    assert "3.00 V" in mail.get_content()
    assert f"{link}1" in mail.get_content()
    told = database.rows("SELECT title FROM notification WHERE user_id = 1 ORDER BY title")
    assert [row["title"] for row in told] == ["Battery low: main door", "No data: main door"]
    due = database.rows("""
        SELECT n.title FROM notification_delivery d JOIN notification n ON n.id = d.notification_id
        WHERE d.state = 'pending' ORDER BY n.title
    """)
    assert due == told  # to each device, too
    alerts = await recent_alerts(resources.pool, 1, None, 10)
    assert {alert.kind for alert in alerts if alert.ended_at is None} == {"battery", "silence"}

    database.execute("UPDATE sensor_status SET battery_mv = 4100")
    database.execute("UPDATE sensor_state SET received_at = %s", (hands.now,))
    assert await monitor.check() == 0
    alerts = await recent_alerts(resources.pool, 1, 1, 10)
    assert all(alert.ended_at == hands.now for alert in alerts)
    sent = database.rows("SELECT payload ->> 'state' AS state FROM webhook_delivery ORDER BY id")
    assert [row["state"] for row in sent] == ["began", "began", "ended", "ended"]
    assert await recent_alerts(resources.pool, 2, None, 10) == []


@pytest.mark.parametrize(
    ("locale", "titles", "detail"),
    [
        ("de-CH", ["Batterie schwach: main door", "Keine Daten: main door"], "3,00 V: Batterie"),
        ("fr", ["Aucune donnée: main door", "Batterie faible: main door"], "3,00 V : changez"),
    ],
)
async def test_alerts_are_in_the_language_of_each_member(
    resources: Resources,
    hands: Hands,
    database: Database,
    locale: str,
    titles: list[str],
    detail: str,
) -> None:
    letters = Letters()
    monitor = SensorHealthMonitor(resources.pool, letters, "no-reply@x", "https://x/", clock=hands)
    database.execute("UPDATE app_user SET locale = %s WHERE id = 1", (locale,))
    database.execute(
        "INSERT INTO account_member (account_id, user_id, role) VALUES (1, 2, 'account_member')"
    )
    database.execute("UPDATE sensor_status SET battery_mv = 3000")
    hands.now += timedelta(hours=2)
    await monitor.check()
    [mail] = letters.sent
    assert detail in mail.get_content()
    statement = "SELECT title FROM notification WHERE user_id = %s ORDER BY title"
    assert sorted(row["title"] for row in database.rows(statement, (1,))) == titles
    english = ["Battery low: main door", "No data: main door"]
    assert sorted(row["title"] for row in database.rows(statement, (2,))) == english
    # Pages and webhooks show it to everybody.
    kept = await recent_alerts(resources.pool, 1, None, 10)
    assert any(alert.detail.startswith("3.00 V: change") for alert in kept)


ADMIN = UserRole.ACCOUNT_ADMIN
OWNER = Caller(1, "u1", ADMIN, "business", memberships={1: ADMIN})


class Receiver:
    """Answers deliveries with these statuses, one after another."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.got.append(request)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 0:
            raise httpx.ConnectError("refused")
        return httpx.Response(status)


def sender(resources: Resources, hands: Hands, receiver: Receiver) -> WebhookSender:
    client = httpx.AsyncClient(transport=httpx.MockTransport(receiver))
    return WebhookSender(resources.pool, clock=hands, client=client)


async def test_a_delivery_is_signed_retried_and_logged(resources: Resources, hands: Hands) -> None:
    hands.now = datetime.now(UTC)
    hooks = WebhookService(resources.pool, hands)
    hook, secret = await hooks.add(OWNER, 1, "https://example.org/hook", [WebhookEvent.OCCUPANCY])
    receiver = Receiver(500, 0, 200)
    sending = sender(resources, hands, receiver)
    for hive in (1, 2, 1):
        sending.on_occupancy({"hive": hive, "occupancy": 7, "version": 1})
    assert await sending.enqueue_occupancy(1000.0) == 1  # the other business wants none
    sending.on_occupancy({"hive": 1, "occupancy": 8, "version": 2})
    assert await sending.enqueue_occupancy(1030.0) == 0
    assert await sending.enqueue_occupancy(1061.0) == 1
    hands.now += timedelta(seconds=1)
    while await sending.send_due():
        pass
    for pause in (10, 20):
        hands.now += timedelta(seconds=pause)
        await sending.send_due()
    request = receiver.got[-1]
    stamp, _, mac = request.headers["penstock-signature"].partition(",v1=")
    expected = hmac.new(
        secret.encode(), stamp.removeprefix("t=").encode() + b"." + request.content, hashlib.sha256
    )
    assert mac == expected.hexdigest()
    assert request.headers["penstock-event"] == "occupancy"
    assert json.loads(request.content)["name"] == "The Comb"
    logged = await hooks.deliveries(OWNER, hook.id, 10)
    assert [each.state for each in logged] == ["sent", "sent"]
    assert max(each.attempts for each in logged) == 2


async def test_a_webhook_that_always_fails_is_disabled(resources: Resources, hands: Hands) -> None:
    hands.now = datetime.now(UTC)
    hooks = WebhookService(resources.pool, hands)
    hook, _ = await hooks.add(OWNER, 1, "https://example.org/hook", [WebhookEvent.DEAL])
    async with resources.pool.transaction() as connection:
        for number in range(MAX_FAILURES):
            await enqueue_event(connection, 1, WebhookEvent.DEAL, {"code": number})
    sending = sender(resources, hands, Receiver(410))
    for attempt in range(MAX_ATTEMPTS):
        hands.now += timedelta(seconds=10 * 2**attempt + 1)
        await sending.send_due()
    [found] = await hooks.of_account(OWNER, 1)
    assert (found.enabled, found.disabled_reason) == (False, "the webhook responded 410")
    await hooks.enable(OWNER, hook.id)
    assert (await hooks.of_account(OWNER, 1))[0].enabled


async def test_webhooks_are_of_admins_and_of_safe_addresses(
    resources: Resources, hands: Hands
) -> None:
    hooks = WebhookService(resources.pool, hands, production=True)
    events = [WebhookEvent.DEAL]
    for url in ("http://example.org/", "http://127.0.0.1/", "ftp://x", "https://a:b@x/", "x"):
        with pytest.raises(InvalidRequest):
            await hooks.add(OWNER, 1, url, events)
    stranger = Caller(2, "u2", UserRole.USER, "free")
    with pytest.raises(AccessRefused):
        await hooks.add(stranger, 1, "https://example.org/", events)
    hook, _ = await hooks.add(OWNER, 1, "https://localhost/hook", events)
    for work in (hooks.remove, hooks.test, hooks.enable):
        with pytest.raises(NotFound):
            await work(stranger, hook.id)
    hands.now = datetime.now(UTC)
    await hooks.test(OWNER, hook.id)
    receiver = Receiver(200)
    client = httpx.AsyncClient(transport=httpx.MockTransport(receiver))
    sending = WebhookSender(resources.pool, production=True, clock=hands, client=client)
    hands.now += timedelta(seconds=1)
    await sending.send_due()
    [logged] = await hooks.deliveries(OWNER, hook.id, 1)
    assert "not a public address" in logged.error
    assert receiver.got == []


async def test_tests_of_a_webhook_are_limited(resources: Resources, hands: Hands) -> None:
    hooks = WebhookService(resources.pool, hands)
    hook, _ = await hooks.add(OWNER, 1, "https://hook.example/", [WebhookEvent.DEAL])
    for _ in range(MAX_TESTS):
        await hooks.test(OWNER, hook.id)
    with pytest.raises(TooManyRequests, match="5 tests a minute"):
        await hooks.test(OWNER, hook.id)


async def test_a_webhook_is_sent_to_the_address_that_was_checked(
    resources: Resources, hands: Hands
) -> None:
    """A name that resolves to another address at the second time does not help."""
    hooks = WebhookService(resources.pool, hands, production=True)
    hook, _ = await hooks.add(OWNER, 1, "https://hook.example:8443/a?b=c", [WebhookEvent.DEAL])
    requests: list[httpx.Request] = []
    answers = [["93.184.215.14"], ["10.0.0.7"], ["2606:4700::1111"], ["93.184.215.14", "::1"]]

    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hook.example", 8443)
        return answers.pop(0)

    def receive(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(204)

    client = httpx.AsyncClient(transport=httpx.MockTransport(receive))
    sending = WebhookSender(
        resources.pool, production=True, clock=hands, client=client, resolve=resolve
    )
    hands.now = datetime.now(UTC)
    for _ in range(4):
        await hooks.test(OWNER, hook.id)
        hands.now += timedelta(seconds=1)
        await sending.send_due()

    targets = ["https://93.184.215.14:8443/a?b=c", "https://[2606:4700::1111]:8443/a?b=c"]
    assert [str(each.url) for each in requests] == targets
    assert {each.headers["host"] for each in requests} == {"hook.example:8443"}
    assert {each.extensions["sni_hostname"] for each in requests} == {"hook.example"}
    errors = [each.error for each in await hooks.deliveries(OWNER, hook.id, 4)]
    assert ["not a public address" in each for each in errors] == [True, False, True, False]


async def test_the_report_of_a_week_is_mailed_once_on_monday_morning(
    resources: Resources, hands: Hands, database: Database
) -> None:
    monday = date(2026, 2, 23)
    for back in range(-7, 7):
        database.execute(
            "INSERT INTO kpi_day (hive_id, day, visits, peak_hour) VALUES (1, %s, %s, 12)",
            (monday + timedelta(days=back), 100 if back < 0 else 110),
        )
    letters = Letters()
    mailer = WeeklyReportMailer(resources.pool, letters, "no-reply@x", "https://x/r", clock=hands)
    hands.now = datetime(2026, 3, 2, 5, 0, tzinfo=UTC)  # six in Berlin
    assert await mailer.send_due() == 0
    hands.now += timedelta(hours=1)
    assert await mailer.send_due() == 1
    assert await mailer.send_due() == 0
    [mail] = letters.sent
    assert mail["Subject"] == "Comb: the week of 23 February"
    assert "The Comb: 770 (+10% against the week before)" in mail.get_content()
    report = await read_report(resources.pool, 1, monday_before(date(2026, 3, 4)))
    assert (report.week, report.visits) == (monday, 770)


@pytest.mark.parametrize(
    ("locale", "subject", "lines"),
    [
        (
            "de",
            "Comb: die Woche vom 1. März",
            [
                "Comb, 1. März bis 7. März 2027",
                "1.234 Besuche (+10 % gegenüber der Vorwoche)",
                "* The Comb ist voller als zuvor: 1.300 Besuche am Tag in den letzten vier Wochen",
            ],
        ),
        (
            "fr",
            "Comb : la semaine du 1er mars",
            [
                "Comb, du 1er mars au 7 mars 2027",
                "1\u202f234 visites (+10 % par rapport à",
                "* The Comb attire plus de monde qu’avant: 1\u202f300 visites par jour",
            ],
        ),
    ],
)
async def test_the_report_is_in_the_language_of_each_member(
    resources: Resources,
    hands: Hands,
    database: Database,
    locale: str,
    subject: str,
    lines: list[str],
) -> None:
    for day, visits in ((date(2027, 2, 22), 1122), (date(2027, 3, 1), 1234)):
        database.execute(
            "INSERT INTO kpi_day (hive_id, day, visits, peak_hour) VALUES (1, %s, %s, 12)",
            (day, visits),
        )
    database.execute(
        "INSERT INTO insight (account_id, hive_id, kind, day, title, body, weight, data) "
        "VALUES (1, 1, 'busier', '2027-03-07', 'Busier', 'By 30%%.', 0.3, %s)",
        ('{"hive": "The Comb", "now": 1300, "before": 1000, "change": 0.3}',),
    )
    database.execute("UPDATE app_user SET locale = %s WHERE id = 1", (locale,))
    letters = Letters()
    mailer = WeeklyReportMailer(resources.pool, letters, "no-reply@x", "https://x/r", clock=hands)
    hands.now = datetime(2027, 3, 8, 9, 0, tzinfo=UTC)
    assert await mailer.send_due() == 1
    [mail] = letters.sent
    assert mail["Subject"] == subject
    for line in lines:
        assert line in mail.get_content()
