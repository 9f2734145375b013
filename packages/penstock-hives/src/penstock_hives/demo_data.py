"""Users, plans, deals and feedback for the demonstration.

    create_demo_data(database, now)

A second call adds only the deals of a new day and does not overwrite changes. The three users have
a public password. In production mode they are rejected with any credential: password, session,
token or API key (`DEMO_UIDS`).
"""

from __future__ import annotations

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
    ("Two for one before noon", "Any two coffees for the price of one.", "daily", 6, 12),
    ("Quiet hour", "A tenth off everything while there is room.", "daily", 14, 17),
    ("Happy hour", "House drinks at half price.", "daily", 17, 20),
    ("This week's tasting", "Four small plates, chosen by the kitchen.", "event", 0, 7 * 24),
    ("Bring a friend", "The second of you pays half.", "promotion", 0, 14 * 24),
    ("Fifteen per cent", "On what is marked with a bee.", "discount", 0, 5 * 24),
)
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
    VALUES (%(uid)s, %(nickname)s, %(role)s, 'Europe/London')
    ON CONFLICT (firebase_uid) DO UPDATE SET firebase_uid = excluded.firebase_uid
    RETURNING id
"""
_CREDENTIAL: Final = """
    INSERT INTO credential (uid, login, password_hash) VALUES (%s, %s, %s)
    ON CONFLICT DO NOTHING
"""
_SUBSCRIBE: Final = """
    INSERT INTO subscription
        (user_id, account_id, subscription_type_id, provider, provider_ref, status)
    SELECT %(user)s, %(account)s, id, 'manual', %(ref)s, 'active'
    FROM subscription_type WHERE code = %(plan)s
    ON CONFLICT (provider, provider_ref) DO NOTHING
"""
_JOIN: Final = """
    INSERT INTO account_member (account_id, user_id, role)
    SELECT min(id), %s, 'account_admin' FROM account WHERE name = %s HAVING min(id) IS NOT NULL
    ON CONFLICT DO NOTHING
"""
_HIVES: Final = "SELECT id, account_id, time_zone FROM hive WHERE status = 'active' ORDER BY id"
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


def create_demo_data(database: Database, now: datetime) -> None:
    """In one transaction."""
    with database.transaction() as connection:
        hives = connection.execute(_HIVES).fetchall()
        users = {person.nickname: _create_user(connection, person) for person in DEMO_USERS}
        _subscribe_accounts(connection)
        for number, hive in enumerate(hives):
            _create_deals(connection, hive, number, now)
        _create_favourites(connection, users["ada"], hives)
        messages = "SELECT FROM user_message WHERE user_id = %s LIMIT 1"
        if connection.execute(messages, (users["ada"],)).fetchone() is None:
            _create_feedback(connection, users["ada"], hives, now)


def _create_user(connection: Connection, person: DemoUser) -> int:
    given = {"uid": person.uid, "nickname": person.nickname, "role": person.role}
    row = connection.execute(_USER, given).fetchone()
    assert row is not None
    number = int(row["id"])
    known = "SELECT FROM credential WHERE uid = %s"
    if connection.execute(known, (person.uid,)).fetchone() is None:
        digest = argon2_hasher().hash(PASSWORD)
        connection.execute(_CREDENTIAL, (person.uid, person.login, digest))
    if person.plan is not None:
        _subscribe(connection, person.plan, f"demo-{person.nickname}", user=number)
    if person.account is not None:
        connection.execute(_JOIN, (number, person.account))
    return number


def _subscribe_accounts(connection: Connection) -> None:
    for row in connection.execute("SELECT id FROM account ORDER BY id").fetchall():
        _subscribe(connection, "business", f"demo-account-{row['id']}", account=row["id"])


def _subscribe(
    connection: Connection,
    plan: str,
    ref: str,
    user: int | None = None,
    account: int | None = None,
) -> None:
    given = {"plan": plan, "ref": ref, "user": user, "account": account}
    connection.execute(_SUBSCRIBE, given)


def _create_deals(connection: Connection, hive: dict[str, Any], number: int, now: datetime) -> None:
    """Two of three hives have deals; daily ones for each local day."""
    if number % 3 == 2:
        return
    today = now.astimezone(ZoneInfo(hive["time_zone"])).date()
    midnight = datetime.combine(today, time(), ZoneInfo(hive["time_zone"])).astimezone(UTC)
    for each in (number % len(_OFFERS), (number // 2 + 3) % len(_OFFERS)):
        title, description, kind, first, last = _OFFERS[each]
        given = {
            "hive": hive["id"],
            "title": title,
            "description": description,
            "kind": kind,
            "begins": midnight + timedelta(hours=first),
            "ends": midnight + timedelta(hours=last),
        }
        connection.execute(_DEAL, given)


def _create_favourites(connection: Connection, user: int, hives: list[dict[str, Any]]) -> None:
    for hive in hives[:12:4]:
        connection.execute(
            """
            INSERT INTO user_hive (user_id, hive_id, favourite, favourite_at)
            VALUES (%s, %s, true, now()) ON CONFLICT DO NOTHING
            """,
            (user, hive["id"]),
        )


def _create_feedback(
    connection: Connection, user: int, hives: list[dict[str, Any]], now: datetime
) -> None:
    for number, hive in enumerate(hives[:24]):
        content, rating = _FEEDBACK[number % len(_FEEDBACK)]
        given = {
            "user": user,
            "hive": hive["id"],
            "account": hive["account_id"],
            "content": content,
            "rating": rating,
            "at": now - timedelta(hours=5 * number),
        }
        connection.execute(_MESSAGE, given)
