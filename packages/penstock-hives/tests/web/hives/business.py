"""A business to look at: places with a past, deals, feedback, sensors, and two people.

Ada answers for the business of the first hive, `ada@example.org`; Bob, `bob@example.org`, for none.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Page

from penstock_hives.database import DatabasePool
from penstock_hives.identity.service import open_identity, require_local_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_store import Connection, Database
from tests.hives.app.sites import furnish

PASSWORD = "a long enough password"
ADA, BOB = "ada@example.org", "bob@example.org"

_KPIS = """
    INSERT INTO kpi_day
        (hive_id, day, visits, mean_occupancy, mean_percent, peak, peak_hour, coverage)
    SELECT hive, %(today)s::date - n, 240 + 30 * (extract(isodow FROM %(today)s::date - n) / 2)
            + 11 * (n * 5 %% 7) + 5 * hive, 14 + n %% 5,
        34 + 4 * (extract(isodow FROM %(today)s::date - n) / 2) + n * 5 %% 7, 30 + n %% 9,
        12 + n %% 3, 0.97
    FROM generate_series(1, %(hives)s) hive, generate_series(1, 28) n
"""
_HOURS = """
    INSERT INTO occupancy_hour (hive_id, slot, entries, exits, occupancy_end, peak, mean)
    SELECT h.id, slot, came, came, 10, 22, 12.5
    FROM hive h, generate_series(0, 72) n,
        LATERAL (SELECT %(hour)s - n * interval '1 hour' AS slot) AS at,
        LATERAL (SELECT greatest(1, 40 - 5 * abs(extract(hour FROM slot
            AT TIME ZONE h.time_zone)::int - 13) + (n * 7 + h.id) %% 7) AS came) AS counted
"""
_DAYS = """
    INSERT INTO occupancy_day (hive_id, day, entries, exits, occupancy_end, peak, mean)
    SELECT hive, %(today)s::date - n, 200 + 9 * n, 200 + 9 * n, 0, 33, 12.5
    FROM generate_series(1, %(hives)s) hive, generate_series(1, 28) n
"""
_FEEDBACK = """
    INSERT INTO user_message
        (user_id, hive_id, account_id, type, content, sentiment, sentiment_label, rating)
    SELECT u.id, h.id, h.account_id, 'feedback', m.content, m.score, m.label, m.stars
    FROM hive h, app_user u, (VALUES
        ('The new terrace is lovely, and there was a seat at noon.', 0.8, 'positive', 5),
        ('Far too loud on Saturday, and nobody at the till.', -0.7, 'negative', 2),
        ('Is there a table for eight?', 0.0, 'neutral', NULL)) AS m (content, score, label, stars)
    WHERE h.id = 1 AND u.firebase_uid = %(uid)s
"""
_INSIGHTS = """
    INSERT INTO insight (account_id, hive_id, kind, day, title, body, weight)
    SELECT account_id, id, 'quiet_hours', %(today)s::date, 'Tuesdays after three are quiet',
        'On average 9 people are inside, a third of what other days have. A deal could help.', 0.9
    FROM hive WHERE id = 1
"""
_EFFECT = """
    INSERT INTO deal_effect (deal_id, day, days, visits, expected, lift, made_at)
    SELECT id, %(today)s::date - 1, 3, 388, 341, 0.138, %(hour)s FROM deal WHERE hive_id = 1
"""
_PEERS = """
    INSERT INTO hive_comparison
        (hive_id, day, window_days, visits_now, visits_before, peers, peer_visits, rank, made_at)
    VALUES (1, %(today)s::date - 1, 28, 338, 320, 6, 290, 2, %(hour)s)
"""
_VOICES = """
    INSERT INTO feedback_day (hive_id, day, messages, positive, negative, sentiment, model, made_at)
    SELECT 1, %(today)s::date - n, 4 + n %% 3, 2 + n * 5 %% 4, n * 5 %% 3, 0.2, 'vader', %(hour)s
    FROM generate_series(1, 24, 2) n
"""
_OPENED = """
    INSERT INTO deal_event (deal_id, kind)
    SELECT d.id, k.kind FROM deal d, (VALUES ('shown'), ('shown'), ('opened')) AS k (kind)
    WHERE d.hive_id = 1
"""
_INTEREST = """
    INSERT INTO hive_popularity
        (day, window_days, hive_id, views, searches, favourites, visits, score, rank, made_at)
    SELECT %(today)s::date - 1, 30, n, 90 / n, 40 / n, 9 / n, 300, 1.0 / n, n, %(hour)s
    FROM generate_series(1, %(hives)s) n ON CONFLICT DO NOTHING
"""
_SHIFTS = """
    INSERT INTO preference_shift (day, window_days, hive_type, share_before, share_now, made_at)
    VALUES (%(today)s::date - 1, 30, 'cafe', 0.31, 0.42, %(hour)s),
        (%(today)s::date - 1, 30, 'store', 0.69, 0.58, %(hour)s)
"""
_VISITORS = """
    WITH visitors AS (
        INSERT INTO app_user (firebase_uid, age_band, gender)
        SELECT 'visitor-' || n, '25_34', 'female' FROM generate_series(1, 12) n RETURNING id)
    INSERT INTO user_hive (user_id, hive_id, visit_count) SELECT id, 1, 1 FROM visitors
"""
_METRIC = """
    WITH made AS (
        INSERT INTO custom_metric (account_id, name, formula)
        SELECT account_id, 'Views of a visit', 'views / visits' FROM hive WHERE id = 1
        RETURNING id)
    INSERT INTO custom_metric_value (metric_id, hive_id, day, value, made_at)
    SELECT id, 1, %(today)s::date - n, 0.1 * n, %(hour)s FROM made, generate_series(1, 9) n
"""
#: What operators see.
_QUESTION = """
    INSERT INTO user_message (user_id, author_id, type, content)
    SELECT id, id, 'support', 'Where do I find my code?' FROM app_user
    WHERE firebase_uid = %(uid)s
"""
_DEAD_LETTERS = """
    INSERT INTO dead_letter_count (day, stream, reason, count, last_at)
    VALUES (%(today)s::date - 1, 'sensors', 'checksum', 3, %(hour)s)
"""
_AUDIT = """
    INSERT INTO audit_log (account_id, action, entity, entity_id, details, at)
    SELECT account_id, 'edit', 'hive', 1, '{"fields": ["name"]}', %(hour)s FROM hive WHERE id = 1
"""
_ACTIONS = """
    INSERT INTO user_analytics (session_id, page_identifier, action, hive_id, data_json, at)
    SELECT 's', 'list', action, 1, '{"query": "coffee"}', %(hour)s
    FROM unnest(ARRAY['navigate', 'search', 'view', 'favourite']) AS done (action)
"""
_MEMBER = """
    INSERT INTO account_member (account_id, user_id, role)
    SELECT h.account_id, u.id, 'account_admin' FROM hive h, app_user u
    WHERE h.id = 1 AND u.firebase_uid = %(uid)s
"""
_STATEMENTS = (
    *(_KPIS, _HOURS, _DAYS, _INSIGHTS, _EFFECT, _PEERS, _VOICES, _INTEREST, _SHIFTS, _VISITORS),
    *(_METRIC, _DEAD_LETTERS, _AUDIT, _ACTIONS),
)


@dataclass(frozen=True)
class Business:
    url: str
    broker: str
    database: str
    folder: Path


def sign_in(page: Page, path: str, login: str = ADA) -> None:
    page.goto(path)
    page.get_by_label("Name").fill(login)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def furnish_business(url: str, folder: Path, hives: int = 6, zone: str | None = None) -> None:
    furnish(url, hives, zone)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    given = {"today": now.date(), "hour": now, "hives": hives}
    with ThreadPoolExecutor(1) as elsewhere:  # a browser may have a loop running in this thread
        ada = elsewhere.submit(lambda: asyncio.run(_sign_up(url, folder))).result()
    with Database(url) as database, database.transaction() as connection:
        for statement in _STATEMENTS:
            connection.execute(statement, given)
        connection.execute(_FEEDBACK, {"uid": ada})
        connection.execute(_MEMBER, {"uid": ada})
        connection.execute(_QUESTION, {"uid": ada})
        connection.execute(_OPENED)
        _fit_sensors(connection, datetime.now(UTC))


def _fit_sensors(connection: Connection, now: datetime) -> None:
    """One that is heard of, one that fell silent yesterday."""
    for number, seen in ((1, now), (2, now - timedelta(days=1))):
        connection.execute(
            """
            WITH added AS (
                INSERT INTO sensor (serial, hive_id, name) VALUES (%s, 1, %s) RETURNING id)
            INSERT INTO sensor_state (sensor_id, total_in, total_out, received_at, at, batch)
            SELECT id, 410, 402, %s, %s, 1 FROM added
            """,
            (f"door-{number}", ("main door", "side door")[number - 1], seen, seen),
        )


async def _sign_up(url: str, folder: Path) -> str:
    """Ada's identifier."""
    settings = IdentitySettings(folder=folder / "hives" / "identity")
    async with (
        open_identity(settings, production=False, environment=os.environ) as identify,
        DatabasePool(url) as pool,
    ):
        desk = require_local_identity(identify).sign_in(pool)
        sessions = [await desk.sign_up(login, PASSWORD) for login in (ADA, BOB)]
        for session, name in zip(sessions, ("Ada", "Bob"), strict=True):
            await pool.execute(
                "INSERT INTO app_user (firebase_uid, nickname) VALUES (%s, %s)",
                (session.uid, name),
            )
    return sessions[0].uid
