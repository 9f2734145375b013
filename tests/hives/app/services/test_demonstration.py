"""The demonstration's people, deals and feedback."""

from __future__ import annotations

from datetime import timedelta

from argon2 import PasswordHasher

from penstock.hives import catalogue
from penstock.hives.app.demonstration import PASSWORD, PEOPLE, furnish
from penstock.hives.app.domain.roles import Role
from penstock.hives.app.repositories.people import PeopleRepository
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.sensors.fleet import Fleet
from penstock.store import Database
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
    catalogue.write(database, fleet.hives, fleet.sensors)

    furnish(database, NOON)
    [first] = database.rows(COUNTS)
    furnish(database, NOON)
    [again] = database.rows(COUNTS)
    furnish(database, NOON + timedelta(days=1))
    [tomorrow] = database.rows(COUNTS)

    assert first == again
    assert min(first.values()) > 0
    assert tomorrow["deals"] > first["deals"]
    assert tomorrow["messages"] == first["messages"]
    [row] = database.rows(
        "SELECT password_hash FROM credential WHERE login = %s", (PEOPLE[0].login,)
    )
    assert PasswordHasher().verify(row["password_hash"], PASSWORD)
    async with Pool(database.url, 1, wait=60) as pool, pool.reading() as connection:
        people = PeopleRepository(connection)
        ada, grace, olga = [
            await people.caller(each.uid, NOON + timedelta(days=9999)) for each in PEOPLE
        ]
    assert ada.plan == "premium"
    assert list(grace.memberships.values()) == [Role.ACCOUNT_ADMIN]
    assert olga.role is Role.OPERATOR
