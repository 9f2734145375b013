"""The schema of hives: what it records by itself, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock_store import Database
from tests.databases import copy_of


@pytest.fixture
def database(embedded_template: str) -> Iterator[Database]:
    with copy_of(embedded_template) as url, Database(url) as database:
        yield database


@pytest.fixture
def hive(database: Database) -> int:
    database.execute("INSERT INTO account (name) VALUES ('Ada''s')")
    database.execute("INSERT INTO hive_type (code, name) VALUES ('bar', 'Bar')")
    [row] = database.rows(
        "INSERT INTO hive (account_id, hive_type_id, name, time_zone) "
        "SELECT a.id, t.id, 'The Comb', 'Pacific/Auckland' FROM account a, hive_type t RETURNING id"
    )
    return int(row["id"])


def test_a_changed_row_says_when(database: Database, hive: int) -> None:
    database.execute("UPDATE hive SET capacity = 80 WHERE id = %s", (hive,))

    [row] = database.rows("SELECT updated_at > created_at AS later FROM hive")
    assert row["later"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE hive SET time_zone = 'Mars/Olympus'",
        "UPDATE hive SET time_zone = 'EST'",
        "UPDATE hive SET capacity = 0",
        "UPDATE hive SET opening_hours = '[]'",
        "INSERT INTO sensor (serial, hive_id, protocol) SELECT 's', id, 'v9' FROM hive",
        "INSERT INTO sensor (serial, hive_id) VALUES ('s', 0)",
        "INSERT INTO hive_status (hive_id, occupancy, raw_occupancy, as_of, version)"
        " SELECT id, -1, -1, now(), 1 FROM hive",
        "INSERT INTO occupancy_5min (hive_id, slot) SELECT id, '2026-01-01 00:03Z' FROM hive",
        "INSERT INTO forecast SELECT id, now(), 'm', now(), 9, 5 FROM hive",
        "INSERT INTO address (lat) VALUES (10)",
    ],
)
def test_what_cannot_be_is_refused(database: Database, hive: int, statement: str) -> None:
    with pytest.raises((psycopg.IntegrityError, psycopg.DataError)):
        database.execute(statement)
