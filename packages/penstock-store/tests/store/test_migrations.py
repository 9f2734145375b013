"""The schema: built, taken back, and what it refuses."""

from __future__ import annotations

import threading

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from penstock_store import Database, StoreNotReady, StoreUnavailable, connect, migrate
from penstock_store.schema import EMPTY, Schema, installed_schemas, revisions
from tests.peers import free_port

#: Everything of ours, by kind and name.
OBJECTS = """
    SELECT 'table ' || table_schema || '.' || table_name AS name FROM information_schema.tables
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
        AND table_name NOT LIKE 'alembic_version%'
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


HEADS = {schema.name: schema.head for schema in installed_schemas()}


@pytest.mark.parametrize("schema", installed_schemas(), ids=lambda schema: schema.name)
def test_a_schema_has_one_head_and_it_is_the_one_we_ask_for(schema: Schema) -> None:
    package, _, folder = schema.scripts.rpartition(".")
    config = Config()
    config.set_main_option("script_location", f"{package}:{folder}")

    assert ScriptDirectory.from_config(config).get_heads() == [schema.head]


def test_an_empty_database_gets_all_tables_and_every_step_can_be_taken_back(empty: str) -> None:
    migrate(empty)
    assert revisions(empty) == HEADS
    before = objects(empty)
    tables = {name.removeprefix("table public.") for name in before}
    assert {"pipeline_batch", "dead_letter_count"} <= tables

    migrate(empty, EMPTY)
    assert revisions(empty) == {}
    assert objects(empty) == []

    migrate(empty)
    assert objects(empty) == before


def test_migrating_what_is_migrated_changes_nothing(database: Database) -> None:
    database.execute("INSERT INTO pipeline_batch (flow, batch_id, rows) VALUES ('f', 7, 1)")

    migrate(database.url)

    assert database.rows("SELECT batch_id FROM pipeline_batch") == [{"batch_id": 7}]


def test_a_database_from_before_the_first_release_is_left_alone(empty: str) -> None:
    """It had one table with the revision of all packages."""
    with connect(empty) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('0003')")

    with pytest.raises(StoreNotReady, match="from before the first release: create it anew"):
        migrate(empty)

    assert objects(empty) == []


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
    assert revisions(empty) == HEADS


def test_a_step_that_fails_leaves_the_database_as_it_was(empty: str) -> None:
    with connect(empty) as connection:
        connection.execute("CREATE TABLE dead_letter_count (mine int)")  # in the way of a step

    with pytest.raises(Exception, match="dead_letter_count"):
        migrate(empty)

    assert revisions(empty) == {}
    assert objects(empty) == ["table public.dead_letter_count"]


def test_a_newer_penstocks_database_is_left_alone(database: Database) -> None:
    database.execute("UPDATE alembic_version_store SET version_num = '9999'")

    with pytest.raises(StoreNotReady, match="has revision 9999, which this version does not know"):
        migrate(database.url)


def test_no_database_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        migrate(f"postgresql://nobody@127.0.0.1:{free_port()}/none")


def test_every_table_says_what_it_is_for(database: Database) -> None:
    silent = database.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " AND relname NOT LIKE 'alembic_version%' AND obj_description(oid, 'pg_class') IS NULL"
    )

    assert silent == []
