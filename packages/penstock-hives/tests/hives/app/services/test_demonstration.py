"""The demonstration's people, deals and feedback."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from argon2 import PasswordHasher
from PIL import Image

from penstock_hives.database import DatabasePool
from penstock_hives.demo_account import PASSWORD
from penstock_hives.demo_data import DEMO_USERS, create_demo_data
from penstock_hives.demo_pictures import create_demo_pictures
from penstock_hives.people.permissions import UserRole
from penstock_hives.people.repository import PeopleRepository
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet
from penstock_store import Database
from tests.hives.app.world import NOON

COUNTS = """
    SELECT (SELECT count(*) FROM app_user) AS users, (SELECT count(*) FROM deal) AS deals,
           (SELECT count(*) FROM user_message) AS messages,
           (SELECT count(*) FROM subscription) AS subscriptions,
           (SELECT count(*) FROM transaction) AS payments,
           (SELECT count(*) FROM follower_message) AS news,
           (SELECT count(*) FROM user_message WHERE type = 'support') AS questions,
           (SELECT count(*) FROM account_invitation) AS invitations,
           (SELECT count(*) FROM audit_log) AS changes
"""


async def test_the_demonstration_is_furnished_once_and_has_new_deals_every_day(
    database: Database,
) -> None:
    fleet = Fleet(start=NOON, seed=0, hives=12)
    catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)

    hives = [hive.id for hive in fleet.hives]

    create_demo_data(database, NOON, hives)
    [first] = database.rows(COUNTS)
    create_demo_data(database, NOON, hives)
    [again] = database.rows(COUNTS)
    create_demo_data(database, NOON + timedelta(days=1), hives)
    [tomorrow] = database.rows(COUNTS)
    create_demo_data(database, NOON + timedelta(days=5), hives)
    [renewed] = database.rows(COUNTS)

    assert first == again
    assert min(first.values()) > 0
    assert tomorrow["deals"] > first["deals"]
    assert tomorrow["messages"] == first["messages"]
    assert tomorrow["payments"] == first["payments"] == 2 * first["subscriptions"]
    assert renewed["payments"] == 3 * first["subscriptions"]
    [row] = database.rows(
        "SELECT password_hash FROM credential WHERE login = %s", (DEMO_USERS[0].login,)
    )
    assert PasswordHasher().verify(row["password_hash"], PASSWORD)
    async with DatabasePool(database.url, 1, wait=60) as pool, pool.reading() as connection:
        people = PeopleRepository(connection)
        ada, grace, olga = [
            await people.caller(each.uid, NOON + timedelta(days=9999)) for each in DEMO_USERS
        ]
    assert ada.plan == "premium"
    assert list(grace.memberships.values()) == [UserRole.ACCOUNT_ADMIN]
    assert olga.role is UserRole.OPERATOR


EDITS = (
    "UPDATE account SET name = 'Grace and Sons' WHERE name = 'Meadow & Sons'",
    "UPDATE address SET street = 'Elsewhere 1' WHERE id = 1",
    "UPDATE hive SET name = 'Blue Café', capacity = 7, opening_hours = '{}' WHERE id = 1",
    "UPDATE hive SET status = 'closed' WHERE id = 2",
    "UPDATE sensor SET serial = 'new-one', direction_swapped = true WHERE id = 1",
    "DELETE FROM account_member",
    "UPDATE user_hive SET favourite = false, favourite_at = NULL",
    "UPDATE deal SET title = 'Changed' WHERE kind <> 'daily'",
    "DELETE FROM user_notification_def",
)
TABLES = ("account", "address", "hive", "sensor", "account_member", "user_hive", "app_user")


def test_what_was_edited_stays_when_the_demonstration_starts_again(database: Database) -> None:
    fleet = Fleet(start=NOON, seed=0, hives=12)
    hives = [hive.id for hive in fleet.hives]

    def start() -> dict[str, list[dict[str, object]]]:
        catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)
        create_demo_data(database, NOON, hives)
        order = {
            name: "1, 2" if name in ("account_member", "user_hive") else "1" for name in TABLES
        }
        return {
            name: database.rows(f"SELECT * FROM {name} ORDER BY {order[name]}") for name in TABLES
        }

    start()
    for edit in EDITS:
        database.execute(edit)
    first, second = start(), start()

    assert first == second
    (place,) = database.rows("SELECT name, capacity, opening_hours FROM hive WHERE id = 1")
    assert place == {"name": "Blue Café", "capacity": 7, "opening_hours": {}}
    assert database.rows("SELECT name FROM account WHERE name = 'Meadow & Sons'") == []
    assert first["account_member"] == []
    assert database.rows("SELECT id FROM user_notification_def") == []


def test_places_have_a_cover_and_a_picture_of_the_inside_once(
    database: Database, tmp_path: Path
) -> None:
    fleet = Fleet(start=NOON, seed=1, hives=3)
    catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)
    create_demo_pictures(database, tmp_path, fleet.hives)
    statement = "SELECT hive_id, kind, path, width, height, bytes FROM hive_image ORDER BY id"
    rows = database.rows(statement)
    assert [(row["hive_id"], row["kind"]) for row in rows] == [
        (hive.id, kind) for hive in fleet.hives for kind in ("cover", "secondary")
    ]
    for row in rows:
        file = tmp_path / row["path"]
        assert file.stat().st_size == row["bytes"]
        assert Image.open(file).size == (row["width"], row["height"]) == (960, 540)
    create_demo_pictures(database, tmp_path, fleet.hives)
    assert database.rows(statement) == rows
