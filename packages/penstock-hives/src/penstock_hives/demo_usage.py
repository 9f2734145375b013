"""What people did in eight weeks of the demonstration: views, searches, deals, feedback.

    create_demo_usage(connection, now)

Ninety invented visitors without credentials, so nobody can sign in as one of them. Their age bands
and genders are there so that the demographics of a place have groups of ten and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from psycopg.types.json import Jsonb

from penstock_store import Connection

VISITORS: Final = 90
_DAYS: Final = 56
_AGES: Final = ("18_24", "25_34", "35_49", "50_64")
_GENDERS: Final = ("female", "male", "other")
#: Actions of a day at a hive, on average.
_ACTIONS: Final = {"view": 9.0, "search": 3.0, "navigate": 1.5, "favourite": 0.3, "deal_open": 1.2}
#: Types of places that are asked for more and more, or less and less: the change over eight weeks.
_TRENDS: Final = {"cafe": 0.6, "gym": 0.4, "bar": -0.35, "store": -0.2}
_OFFERS: Final = (
    ("Early birds", "A tenth off before ten.", "discount"),
    ("Soup of the week", "With bread, for the price of a coffee.", "promotion"),
    ("Rainy days", "A hot drink with every purchase.", "promotion"),
    ("Members' evening", "Come with your card, bring a friend.", "event"),
)
_FEEDBACK: Final = (
    ("Friendly and quick, I will come back.", 5),
    ("It was as quiet as the app said. Wonderful.", 5),
    ("Good value, and very clean.", 4),
    ("The staff helped us at once, thank you!", 5),
    ("Nice place, a bit warm inside.", 4),
    ("All right.", 3),
    ("Crowded and noisy, we could not talk.", 2),
    ("The queue was terrible and nobody apologised.", 1),
    ("Rude answer at the counter. Disappointing.", 1),
    ("Great selection and easy to find.", 4),
)
_HIVES: Final = """
    SELECT h.id, h.account_id, h.name, h.time_zone, t.code AS kind FROM hive h
    JOIN hive_type t ON t.id = h.hive_type_id WHERE h.status = 'active' ORDER BY h.id
"""
_VISITOR: Final = """
    INSERT INTO app_user (firebase_uid, age_band, gender) VALUES (%s, %s, %s)
    ON CONFLICT (firebase_uid) DO UPDATE SET age_band = excluded.age_band RETURNING id
"""
_DEAL: Final = """
    INSERT INTO deal (hive_id, title, description, kind, starts_at, expires_at, redemptions)
    VALUES (%(hive)s, %(title)s, %(description)s, %(kind)s, %(begins)s, %(ends)s, %(redeemed)s)
    RETURNING id
"""
Hive = dict[str, Any]


_METRICS: Final = """
    INSERT INTO custom_metric (account_id, name, formula, goal, window_days)
    SELECT a.id, m.name, m.formula, m.goal, 7 FROM account a, (VALUES
        ('Views for a hundred visits', '100 * views / max(visits, 1)', 2.0),
        ('Deals redeemed, of those opened', 'deal_redemptions / max(deal_opens, 1)', NULL)
    ) AS m (name, formula, goal)
    ON CONFLICT DO NOTHING
"""


def create_demo_usage(connection: Connection, now: datetime, seed: int = 0) -> None:
    rng = np.random.default_rng([seed, 5])
    hives = connection.execute(_HIVES).fetchall()
    connection.execute(_METRICS)
    people = [
        _create_visitor(connection, number, int(rng.integers(0, 1000)))
        for number in range(VISITORS)
    ]
    _copy(
        connection,
        "user_hive (user_id, hive_id, favourite, favourite_at, last_visited_at, visit_count)",
        _visits(people, hives, now, rng),
    )
    for back in range(0, _DAYS + 31, 28):
        month = now - timedelta(days=back)
        connection.execute("SELECT user_analytics_month(%s)", (month,))
    _copy(
        connection,
        "user_analytics (user_id, session_id, page_identifier, action, hive_id, data_json, at)",
        _actions(people, hives, now, rng),
    )
    _create_deals(connection, people, hives, now, rng)
    _copy(
        connection,
        "user_message (user_id, author_id, hive_id, account_id, type, content, rating, created_at)",
        sorted(_feedback(people, hives, now, rng), key=lambda row: row[-1]),
    )


def _create_visitor(connection: Connection, number: int, draw: int) -> int:
    given = (f"demo-visitor-{number}", _AGES[draw % len(_AGES)], _GENDERS[draw // 7 % 15 // 7])
    row = connection.execute(_VISITOR, given).fetchone()
    assert row is not None
    return int(row["id"])


def _visits(
    people: Sequence[int], hives: Sequence[Hive], now: datetime, rng: np.random.Generator
) -> Iterable[tuple[Any, ...]]:
    for user in people:
        for hive, draw in zip(hives, rng.random(len(hives)).tolist(), strict=True):
            if draw < 0.75:
                at = now - timedelta(days=draw * _DAYS)
                yield user, hive["id"], draw < 0.12, at if draw < 0.12 else None, at, 1 + user % 5


def _actions(
    people: Sequence[int], hives: Sequence[Hive], now: datetime, rng: np.random.Generator
) -> Iterable[tuple[Any, ...]]:
    for hive in hives:
        zone, word = ZoneInfo(hive["time_zone"]), hive["name"].split()[0].lower()
        trend = _TRENDS.get(hive["kind"], 0.0)
        for back in range(1, _DAYS + 1):
            day = now.astimezone(zone) - timedelta(days=back)
            level = 1 + trend * (0.5 - back / _DAYS)
            for action, mean in _ACTIONS.items():
                query = Jsonb({"query": word} if action == "search" else {})
                page = "list" if action == "search" else f"hive/{hive['id']}"
                for _ in range(rng.poisson(mean * level * (0.6 + hive["id"] % 5 / 5))):
                    draw = int(rng.integers(0, 1 << 31))
                    user = people[draw % len(people)] if draw % 3 else None
                    at = day.replace(hour=8 + draw // 7 % 14, minute=draw // 101 % 60)
                    session = f"demo-{draw % 997}-{back}"
                    yield user, session, page, action, hive["id"], query, at.astimezone(UTC)


def _create_deals(
    connection: Connection,
    people: Sequence[int],
    hives: Sequence[Hive],
    now: datetime,
    rng: np.random.Generator,
) -> None:
    """A deal of five days every other week at each hive; the last ended this week."""
    events: list[tuple[Any, ...]] = []
    for hive in hives:
        zone = ZoneInfo(hive["time_zone"])
        today = datetime.combine(now.astimezone(zone).date(), time(), zone)
        for number in range(4):
            begins = today - timedelta(days=8 + 14 * number)
            shown = 20 + int(rng.integers(0, 40))
            opened, redeemed = int(shown * rng.uniform(0.3, 0.6)), int(rng.integers(2, 9))
            title, description, kind = _OFFERS[(hive["id"] + number) % len(_OFFERS)]
            given = {
                "hive": hive["id"],
                "title": title,
                "description": description,
                "kind": kind,
                "begins": begins,
                "ends": begins + timedelta(days=5),
                "redeemed": redeemed,
            }
            row = connection.execute(_DEAL, given).fetchone()
            assert row is not None
            chosen = rng.permutation(len(people)).tolist()
            for name, count in (("shown", shown), ("opened", opened), ("redeemed", redeemed)):
                for each in chosen[:count]:
                    at = begins + timedelta(minutes=int(rng.integers(0, 5 * 1440)))
                    events.append((row["id"], people[each], name, at))
    _copy(connection, "deal_event (deal_id, user_id, kind, at)", events)


def _feedback(
    people: Sequence[int], hives: Sequence[Hive], now: datetime, rng: np.random.Generator
) -> Iterable[tuple[Any, ...]]:
    for hive in hives:
        liked = 0.45 + hive["id"] * 3 % 7 / 12
        for back in np.flatnonzero(rng.random(_DAYS) < 0.3).tolist():
            texts = _FEEDBACK[:6] + _FEEDBACK[9:] if rng.random() < liked else _FEEDBACK[5:9]
            content, rating = texts[int(rng.integers(0, len(texts)))]
            user = people[int(rng.integers(0, len(people)))]
            at = now - timedelta(days=back + 1, minutes=int(rng.integers(0, 720)))
            yield user, user, hive["id"], hive["account_id"], "feedback", content, rating, at


def _copy(connection: Connection, target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
