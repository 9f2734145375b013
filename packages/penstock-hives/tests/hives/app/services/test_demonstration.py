"""The demonstration's people, deals and feedback."""

from __future__ import annotations

from datetime import timedelta

from argon2 import PasswordHasher

from penstock_hives.database import DatabasePool
from penstock_hives.demo_account import PASSWORD
from penstock_hives.demo_data import DEMO_USERS, create_demo_data
from penstock_hives.people.permissions import UserRole
from penstock_hives.people.repository import PeopleRepository
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet
from penstock_store import Database
from tests.hives.app.world import NOON

COUNTS = """
    SELECT (SELECT count(*) FROM app_user) AS users, (SELECT count(*) FROM deal) AS deals,
           (SELECT count(*) FROM user_message) AS messages,
           (SELECT count(*) FROM subscription) AS subscriptions
"""


async def test_the_demonstration_is_furnished_once_and_has_new_deals_every_day(
    database: Database,
) -> None:
    fleet = Fleet(start=NOON, seed=0, hives=12)
    catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)

    create_demo_data(database, NOON)
    [first] = database.rows(COUNTS)
    create_demo_data(database, NOON)
    [again] = database.rows(COUNTS)
    create_demo_data(database, NOON + timedelta(days=1))
    [tomorrow] = database.rows(COUNTS)

    assert first == again
    assert min(first.values()) > 0
    assert tomorrow["deals"] > first["deals"]
    assert tomorrow["messages"] == first["messages"]
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
