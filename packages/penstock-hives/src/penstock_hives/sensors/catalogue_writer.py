"""Write the hives and sensors of a simulated fleet to PostgreSQL.

    with store.open(None, data) as database:
        write_catalogue(database, fleet.hives, fleet.sensors)

Ids are those of the fleet. Hives that are in the database, and their sensors, are not changed: a
business may have edited them since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from penstock_hives.sensors.fleet import SimulatedHive, SimulatedSensor
from penstock_store import Connection, Database

_ACCOUNT: Final = """
    INSERT INTO account (name)
    SELECT %(name)s WHERE NOT EXISTS (SELECT FROM account WHERE name = %(name)s)
"""
_TYPE: Final = """
    INSERT INTO hive_type (code, name) VALUES (%(code)s, %(name)s) ON CONFLICT (code) DO NOTHING
"""
_ADDRESS: Final = """
    INSERT INTO address (id, street, city, zip, country, lat, lon)
    VALUES (%(id)s, %(street)s, %(city)s, %(zip)s, %(country)s, %(lat)s, %(lon)s)
"""
_HIVE: Final = """
    INSERT INTO hive
        (id, account_id, address_id, hive_type_id, name, capacity, time_zone, opening_hours)
    VALUES (
        %(id)s, (SELECT min(id) FROM account WHERE name = %(account)s), %(id)s,
        (SELECT id FROM hive_type WHERE code = %(hive_type)s),
        %(name)s, %(capacity)s, %(time_zone)s, %(opening_hours)s
    )
"""
_SENSOR: Final = """
    INSERT INTO sensor (id, serial, hive_id, name, protocol, profile, direction_swapped)
    VALUES (%(id)s, %(serial)s, %(hive_id)s, %(name)s, %(protocol)s, %(profile)s,
            %(direction_swapped)s)
    ON CONFLICT DO NOTHING
"""
_KNOWN: Final = "SELECT id FROM hive UNION SELECT id FROM address"
#: Ids given by the fleet do not advance the sequences.
_TABLES: Final = ("address", "hive", "sensor")


def write_catalogue(
    database: Database, hives: Sequence[SimulatedHive], sensors: Iterable[SimulatedSensor]
) -> None:
    """In one transaction."""
    with database.transaction() as connection:
        known = {row["id"] for row in connection.execute(_KNOWN).fetchall()}
        _write_hives(connection, [hive for hive in hives if hive.id not in known])
        with connection.cursor() as cursor:
            rows = (each.to_json() for each in sensors if each.hive_id not in known)
            cursor.executemany(
                _SENSOR, [{**row, "profile": json.dumps(row["profile"])} for row in rows]
            )
        for table in _TABLES:
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
            )


def _write_hives(connection: Connection, hives: Sequence[SimulatedHive]) -> None:
    accounts = {hive.account for hive in hives}
    types = {hive.hive_type.code: hive.hive_type.name for hive in hives}
    rows = [hive.to_json() for hive in hives]
    with connection.cursor() as cursor:
        cursor.executemany(_ACCOUNT, [{"name": name} for name in sorted(accounts)])
        cursor.executemany(_TYPE, [{"code": code, "name": name} for code, name in types.items()])
        cursor.executemany(_ADDRESS, [{**row["address"], "id": row["id"]} for row in rows])
        cursor.executemany(
            _HIVE, [{**row, "opening_hours": json.dumps(row["opening_hours"])} for row in rows]
        )
