"""The simulated fleet's hives in the database."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet
from penstock_store import Database

FLEET = Fleet(start=datetime(2026, 3, 2, tzinfo=UTC), hives=50)
TABLES = ("account", "address", "hive_type", "hive", "sensor")


def rows(database: Database) -> dict[str, list[dict[str, object]]]:
    return {name: database.rows(f"SELECT * FROM {name} ORDER BY id") for name in TABLES}


def test_the_fleet_is_in_the_tables(database: Database) -> None:
    catalogue_writer.write_catalogue(database, FLEET.hives, FLEET.sensors)
    found = database.rows("SELECT serial, hive_id, profile FROM sensor ORDER BY id")
    assert [(row["serial"], row["hive_id"], row["profile"]) for row in found] == [
        (sensor.serial, sensor.hive_id, sensor.profile.to_json()) for sensor in FLEET.sensors
    ]
    (bar,) = database.rows("SELECT * FROM hive WHERE id = 4")
    assert bar["opening_hours"]["fri"] == [["17:00", "03:00"]]


def test_written_again_it_changes_nothing(database: Database) -> None:
    catalogue_writer.write_catalogue(database, FLEET.hives, FLEET.sensors)
    before = rows(database)
    catalogue_writer.write_catalogue(database, FLEET.hives, FLEET.sensors)
    assert rows(database) == before


def test_what_others_have_added_stays_and_gets_ids_of_its_own(database: Database) -> None:
    catalogue_writer.write_catalogue(database, FLEET.hives, FLEET.sensors)
    database.execute(
        "INSERT INTO hive (account_id, hive_type_id, name, time_zone) "
        "SELECT min(account.id), min(hive_type.id), 'Ours', 'UTC' FROM account, hive_type"
    )
    catalogue_writer.write_catalogue(database, FLEET.hives, FLEET.sensors)
    (ours,) = database.rows("SELECT id FROM hive WHERE name = 'Ours'")
    assert ours["id"] == 51
