"""Users, plans, deals and feedback for the demonstration.

    create_demo_data(database, now, hives)

A second call adds only the deals of a new day and the payments of a new month: what users have
changed meanwhile stays. The three users have a public password. In production mode they are
rejected with any credential: password, session, token or API key (`DEMO_UIDS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.core.passwords import argon2_hasher
from penstock_hives.demo_account import LOGIN, PASSWORD
from penstock_store import Connection, Database


@dataclass(frozen=True, slots=True)
class DemoUser:
    login: str
    nickname: str
    role: str
    plan: str | None = None
    account: str | None = None  #: name of the account they manage

    @property
    def uid(self) -> str:
        return f"demo-{self.nickname}"


DEMO_USERS: Final = (
    DemoUser("ada@hives.example", "ada", "user", plan="premium"),
    DemoUser(LOGIN, "grace", "account_admin", account="Meadow & Sons"),
    DemoUser("olga@hives.example", "olga", "operator"),
)
DEMO_UIDS: Final = frozenset(person.uid for person in DEMO_USERS)
#: Title, description, kind, first and last hour after local midnight.
_OFFERS: Final = (
    ("Quiet hour", "A tenth off everything while there is room.", "daily", 14, 17),
    ("Bring a friend", "The second of you pays half.", "promotion", 0, 14 * 24),
    ("Fifteen per cent", "On what is marked with a bee.", "discount", 0, 5 * 24),
)
#: Of places that serve food and drinks.
_SERVED: Final = (
    ("Two for one before noon", "Any two coffees for the price of one.", "daily", 6, 12),
    ("Happy hour", "House drinks at half price.", "daily", 17, 20),
    ("This week's tasting", "Four small plates, chosen by the kitchen.", "event", 0, 7 * 24),
)
_SERVING: Final = ("bar", "cafe", "restaurant")
#: Text and rating.
_FEEDBACK: Final = (
    ("Lovely place, friendly people, and the counter says truly when it is quiet.", 5),
    ("Far too loud on Friday evenings. I left after ten minutes.", 2),
    ("The coffee is excellent.", 5),
    ("It said quiet and there was a queue to the door. Please look at the sensor.", 2),
    ("Clean, bright, and there was a table at once. Thank you!", 5),
    ("Slow service. We waited half an hour for two soups.", 1),
    ("The forecast was right: empty at three, full at five.", 4),
    ("Nice enough, nothing special.", 3),
)
_USER: Final = """
    INSERT INTO app_user (firebase_uid, nickname, role, time_zone)
    VALUES (%(uid)s, %(nickname)s, %(role)s, 'Europe/London') RETURNING id
"""
_CREDENTIAL: Final = """
    INSERT INTO credential (uid, login, password_hash) VALUES (%s, %s, %s)
    ON CONFLICT DO NOTHING
"""
_SUBSCRIBE: Final = """
    INSERT INTO subscription
        (user_id, account_id, subscription_type_id, provider, provider_ref, status, started_at)
    SELECT %(user)s, %(account)s, id, 'test', %(ref)s, 'active', %(since)s
    FROM subscription_type WHERE code = %(plan)s
    ON CONFLICT (provider, provider_ref) DO NOTHING
"""
#: Monthly, until the plan is cancelled.
_PAY: Final = """
    WITH held AS (
        SELECT s.id, s.provider_ref, s.started_at, t.price, t.currency,
            floor(extract(epoch FROM %(now)s - s.started_at) / 86400 / 30)::int AS months
        FROM subscription s JOIN subscription_type t ON t.id = s.subscription_type_id
        WHERE s.provider = 'test' AND s.provider_ref LIKE 'demo-%%' AND s.status = 'active'),
    paid AS (
        INSERT INTO transaction (subscription_id, provider_event_id, kind, amount, currency, at)
        SELECT id, provider_ref || '-' || n, CASE n WHEN 0 THEN 'purchase' ELSE 'renewal' END,
            price, currency, started_at + n * interval '30 days'
        FROM held, generate_series(0, months) n
        ON CONFLICT (provider_event_id) DO NOTHING)
    UPDATE subscription s SET renews_at = held.started_at + (months + 1) * interval '30 days'
    FROM held WHERE held.id = s.id
"""
_JOIN: Final = """
    INSERT INTO account_member (account_id, user_id, role)
    SELECT min(id), %s, 'account_admin' FROM account WHERE name = %s HAVING min(id) IS NOT NULL
"""
_HIVES: Final = """
    SELECT h.id, h.account_id, h.time_zone, h.name, t.code AS type
    FROM hive h JOIN hive_type t ON t.id = h.hive_type_id
    WHERE h.status = 'active' AND h.id = ANY (%s::bigint[]) ORDER BY h.id
"""
_ALERT: Final = """
    INSERT INTO user_notification_def
        (user_id, hive_id, kind, threshold, unit, hysteresis, quiet_from, quiet_to)
    VALUES (%s, %s, 'occupancy_below', 40, 'percent', 5, '22:00', '07:00')
"""
_NOTICE: Final = """
    INSERT INTO notification (user_id, kind, hive_id, title, body, link, idempotency_key)
    VALUES (%(user)s, 'system', %(hive)s, 'Welcome to Hives',
            %(body)s, %(link)s, 'demo-welcome')
"""
_DEAL: Final = """
    INSERT INTO deal (hive_id, title, description, kind, starts_at, expires_at)
    SELECT %(hive)s, %(title)s, %(description)s, %(kind)s, %(begins)s, %(ends)s
    WHERE NOT EXISTS (
        SELECT FROM deal WHERE hive_id = %(hive)s AND title = %(title)s AND expires_at > %(begins)s)
"""
_MESSAGE: Final = """
    INSERT INTO user_message
        (user_id, author_id, hive_id, account_id, type, content, rating, created_at)
    VALUES (%(user)s, %(user)s, %(hive)s, %(account)s, 'feedback', %(content)s, %(rating)s, %(at)s)
"""
_QUESTION: Final = """
    INSERT INTO user_message (user_id, author_id, type, content, created_at)
    VALUES (%(ada)s, %(ada)s, 'support', 'Can my sister use the same plan?', %(at)s)
"""
#: To those who follow the first place of the business.
_NEWS: Final = """
    INSERT INTO follower_message
        (account_id, hive_id, sent_by, title, body, recipients, created_at)
    SELECT h.account_id, h.id, %(grace)s, 'More chairs', 'Twenty more, and the window is open.',
        (SELECT count(*) FROM user_hive WHERE hive_id = h.id AND favourite), %(at)s
    FROM hive h JOIN account_member m ON m.account_id = h.account_id AND m.user_id = %(grace)s
    ORDER BY h.id LIMIT 1
"""
_AUDIT: Final = """
    INSERT INTO audit_log (user_id, action, entity, entity_id, account_id, details, at)
    SELECT %(grace)s, 'send', 'follower_message', id, account_id,
        jsonb_build_object('recipients', recipients), created_at
    FROM follower_message WHERE sent_by = %(grace)s
"""
#: Of another business, to hers.
_INVITE: Final = """
    INSERT INTO account_invitation (account_id, user_id, role, created_at, expires_at)
    SELECT min(id), %(grace)s, 'account_member', %(at)s, %(at)s + interval '28 days' FROM account
    WHERE id NOT IN (SELECT account_id FROM account_member WHERE user_id = %(grace)s)
    HAVING min(id) IS NOT NULL
"""


def create_demo_data(database: Database, now: datetime, hives: Sequence[int] = ()) -> None:
    """In one transaction; the deals, favourites and feedback are of these hives."""
    with database.transaction() as connection:
        found = connection.execute(_HIVES, (list(hives),)).fetchall()
        for number, hive in enumerate(found):
            _create_deals(connection, hive, number, now)
        known = "SELECT FROM app_user WHERE firebase_uid = ANY (%s) LIMIT 1"
        if connection.execute(known, (list(DEMO_UIDS),)).fetchone() is not None:
            connection.execute(_PAY, {"now": now})
            return
        since = now - timedelta(days=56)
        users = {each.nickname: _create_user(connection, each, since) for each in DEMO_USERS}
        _subscribe_accounts(connection, since)
        connection.execute(_PAY, {"now": now})
        if found:
            _create_habits(connection, users["ada"], found, now)
            _create_feedback(connection, users["ada"], found, now)
            given = {**users, "at": now - timedelta(days=3)}
            for statement in (_QUESTION, _NEWS, _AUDIT, _INVITE):
                connection.execute(statement, given)


def _create_user(connection: Connection, person: DemoUser, since: datetime) -> int:
    given = {"uid": person.uid, "nickname": person.nickname, "role": person.role}
    row = connection.execute(_USER, given).fetchone()
    assert row is not None
    number = int(row["id"])
    digest = argon2_hasher().hash(PASSWORD)
    connection.execute(_CREDENTIAL, (person.uid, person.login, digest))
    if person.plan is not None:
        _subscribe(connection, person.plan, f"demo-{person.nickname}", since, user=number)
    if person.account is not None:
        connection.execute(_JOIN, (number, person.account))
    return number


def _subscribe_accounts(connection: Connection, since: datetime) -> None:
    for row in connection.execute("SELECT id FROM account ORDER BY id").fetchall():
        ref = f"demo-account-{row['id']}"
        _subscribe(connection, "business", ref, since, account=row["id"])


def _subscribe(
    connection: Connection,
    plan: str,
    ref: str,
    since: datetime,
    user: int | None = None,
    account: int | None = None,
) -> None:
    given = {"plan": plan, "ref": ref, "since": since, "user": user, "account": account}
    connection.execute(_SUBSCRIBE, given)


def _create_deals(connection: Connection, hive: dict[str, Any], number: int, now: datetime) -> None:
    """Two of three hives have deals; daily ones for each local day."""
    if number % 3 == 2:
        return
    today = now.astimezone(ZoneInfo(hive["time_zone"])).date()
    midnight = datetime.combine(today, time(), ZoneInfo(hive["time_zone"])).astimezone(UTC)
    offers = _OFFERS + _SERVED if hive["type"] in _SERVING else _OFFERS
    for each in {number % len(offers), (number // 2 + 1) % len(offers)}:
        title, description, kind, first, last = offers[each]
        given = {
            "hive": hive["id"],
            "title": title,
            "description": description,
            "kind": kind,
            "begins": midnight + timedelta(hours=first),
            "ends": midnight + timedelta(hours=last),
        }
        connection.execute(_DEAL, given)


def _create_habits(
    connection: Connection, user: int, hives: list[dict[str, Any]], now: datetime
) -> None:
    """Favourites, places seen lately, an alert and a first notice."""
    for number, hive in enumerate(hives[:12:2]):
        liked = number % 2 == 0
        connection.execute(
            """
            INSERT INTO user_hive
                (user_id, hive_id, favourite, favourite_at, last_visited_at, visit_count)
            VALUES (%s, %s, %s, %s, %s, 3)
            """,
            (user, hive["id"], liked, now if liked else None, now - timedelta(hours=1 + number)),
        )
    first = hives[0]
    connection.execute(_ALERT, (user, first["id"]))
    body = f"You are told here when {first['name']} is less than 40 % full."
    given = {"user": user, "hive": first["id"], "body": body, "link": f"/#/hive/{first['id']}"}
    connection.execute(_NOTICE, given)


def _create_feedback(
    connection: Connection, user: int, hives: list[dict[str, Any]], now: datetime
) -> None:
    """The oldest first."""
    for number, hive in reversed(list(enumerate(hives[: len(_FEEDBACK)]))):
        content, rating = _FEEDBACK[number]
        given = {
            "user": user,
            "hive": hive["id"],
            "account": hive["account_id"],
            "content": content,
            "rating": rating,
            "at": now - timedelta(hours=1 + 5 * number),
        }
        connection.execute(_MESSAGE, given)
