"""The schema: built, taken back, and what it refuses."""

from __future__ import annotations

import threading

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from penstock.store import Database, StoreUnavailable, StoreUnready, connect, migrate
from penstock.store.migrating import EMPTY, version
from penstock.store.migrations import HEAD
from tests.peers import free_port

#: Everything of ours, by kind and name.
OBJECTS = """
    SELECT 'table ' || table_schema || '.' || table_name AS name FROM information_schema.tables
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
        AND table_name <> 'alembic_version'
    UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'domain ' || typname FROM pg_type
    WHERE typtype = 'd' AND typnamespace = 'public'::regnamespace
    UNION ALL SELECT 'schema ' || nspname FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname NOT IN ('public', 'information_schema')
    ORDER BY 1
"""


def objects(url: str) -> list[str]:
    with Database(url) as database:
        return [row["name"] for row in database.rows(OBJECTS)]


@pytest.fixture
def hive(database: Database) -> int:
    database.execute("INSERT INTO account (name) VALUES ('Ada''s')")
    database.execute("INSERT INTO hive_type (code, name) VALUES ('bar', 'Bar')")
    [row] = database.rows(
        "INSERT INTO hive (account_id, hive_type_id, name, time_zone) "
        "SELECT a.id, t.id, 'The Comb', 'Pacific/Auckland' FROM account a, hive_type t RETURNING id"
    )
    return int(row["id"])


def test_there_is_one_head_and_it_is_the_one_we_ask_for() -> None:
    config = Config()
    config.set_main_option("script_location", "penstock.store:migrations")

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_an_empty_database_gets_all_tables_and_every_step_can_be_taken_back(empty: str) -> None:
    migrate(empty)
    assert version(empty) == HEAD
    before = objects(empty)
    tables = {name.removeprefix("table public.") for name in before}
    assert {"hive", "sensor", "sensor_state", "hive_status", "pipeline_batch", "forecast"} <= tables

    migrate(empty, EMPTY)
    assert version(empty) is None
    assert objects(empty) == []

    migrate(empty)
    assert objects(empty) == before


def test_migrating_what_is_migrated_changes_nothing(database: Database, hive: int) -> None:
    migrate(database.url)

    assert database.rows("SELECT id FROM hive") == [{"id": hive}]


def test_many_may_migrate_at_once(empty: str) -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            migrate(empty)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert version(empty) == HEAD


def test_a_step_that_fails_leaves_the_database_as_it_was(empty: str) -> None:
    with connect(empty) as connection:
        connection.execute("CREATE TABLE hive_status (mine int)")  # in the way of the second step

    with pytest.raises(Exception, match="hive_status"):
        migrate(empty)

    assert version(empty) is None
    assert objects(empty) == ["table public.hive_status"]


def test_a_newer_penstocks_database_is_left_alone(database: Database) -> None:
    database.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StoreUnready, match="migrated by a newer one"):
        migrate(database.url)


def test_no_database_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        migrate(f"postgresql://nobody@127.0.0.1:{free_port()}/none")


def test_every_table_says_what_it_is_for(database: Database) -> None:
    silent = database.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " AND relname <> 'alembic_version' AND obj_description(oid, 'pg_class') IS NULL"
    )

    assert silent == []


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
