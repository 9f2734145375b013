"""Transactions, and what becomes of calls when the server does not play along."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from penstock.core.errors import ConfigurationError
from penstock.core.retry import retry
from penstock_store import (
    Database,
    EmbeddedServer,
    StoreConflict,
    StoreFull,
    StoreNotReady,
    StoreTimeout,
    StoreUnavailable,
)
from penstock_store.embedded import postmaster
from tests.databases import with_name
from tests.peers import free_port


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    return database


def test_a_transaction_commits_at_the_end_of_its_block(table: Database) -> None:
    with table.transaction() as connection:
        connection.execute("UPDATE t SET n = 7 WHERE id = 1")

    assert table.rows("SELECT n FROM t WHERE id = 1") == [{"n": 7}]


def test_a_transaction_that_raises_leaves_nothing(table: Database) -> None:
    def work() -> None:
        with table.transaction() as connection:
            connection.execute("UPDATE t SET n = 7 WHERE id = 1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()

    assert table.rows("SELECT n FROM t WHERE id = 1") == [{"n": 0}]


def test_execute_says_how_many_rows_it_touched(table: Database) -> None:
    assert table.execute("UPDATE t SET n = n + %s", (1,)) == 2


def test_times_are_in_utc(database: Database) -> None:
    assert database.rows("SELECT current_setting('TimeZone') AS zone") == [{"zone": "UTC"}]


def test_connections_are_used_again(database: Database) -> None:
    pids = {database.rows("SELECT pg_backend_pid() AS pid")[0]["pid"] for _ in range(5)}

    assert len(pids) == 1


def test_threads_have_transactions_of_their_own(table: Database) -> None:
    def add() -> None:
        for _ in range(20):
            table.execute("UPDATE t SET n = n + 1 WHERE id = 1")

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert table.rows("SELECT n FROM t WHERE id = 1") == [{"n": 120}]


def test_a_connection_the_server_ended_meanwhile_is_not_noticed(database: Database) -> None:
    pid = database.rows("SELECT pg_backend_pid() AS pid")[0]["pid"]
    with Database(database.url) as other:
        other.rows("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    assert database.rows("SELECT 1 AS one") == [{"one": 1}]


def test_a_server_restarted_between_calls_is_not_noticed(grounds: Path) -> None:
    with EmbeddedServer(grounds / "pg") as server, Database(server.url) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS n")
        postmaster.stop_server(server.data, grounds / "pg.log")
        with EmbeddedServer(server.data):
            assert database.rows("SELECT n FROM t") == [{"n": 1}]


def test_a_server_that_is_away_is_named_without_the_password() -> None:
    port = free_port()
    database = Database(f"postgresql://me:secret@127.0.0.1:{port}/mine")

    with pytest.raises(
        StoreUnavailable, match=f"cannot reach the database at 127.0.0.1:{port}/mine"
    ) as raised:
        database.rows("SELECT 1")

    assert "secret" not in str(raised.value)


def test_a_connection_lost_in_a_transaction_is_unavailable(table: Database) -> None:
    def work() -> None:
        with table.transaction() as connection:
            pid = connection.info.backend_pid
            with Database(table.url) as other:
                other.rows("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            connection.execute("UPDATE t SET n = 7")

    with pytest.raises(StoreUnavailable):
        work()

    assert table.rows("SELECT sum(n) AS n FROM t") == [{"n": 0}]


def test_a_slow_statement_times_out(database: Database) -> None:
    with (
        Database(database.url, statement_seconds=0.05) as hasty,
        pytest.raises(StoreTimeout, match="statement timeout"),
    ):
        hasty.rows("SELECT pg_sleep(10)")


def test_transactions_that_cannot_be_put_in_order_conflict(table: Database) -> None:
    def work() -> None:
        with table.transaction(serializable=True) as one:
            one.execute("SELECT sum(n) FROM t")
            with table.transaction(serializable=True) as other:
                other.execute("SELECT sum(n) FROM t")
                other.execute("UPDATE t SET n = 1 WHERE id = 1")
            one.execute("UPDATE t SET n = 1 WHERE id = 2")

    with pytest.raises(StoreConflict):
        work()


def test_a_conflict_is_cured_by_another_attempt(table: Database) -> None:
    runs: list[int] = []

    def work() -> None:
        with table.transaction(serializable=True) as one:
            one.execute("SELECT sum(n) FROM t")
            if not runs:
                runs.append(1)
                with table.transaction(serializable=True) as other:
                    other.execute("SELECT sum(n) FROM t")
                    other.execute("UPDATE t SET n = 1 WHERE id = 1")
            one.execute("UPDATE t SET n = 1 WHERE id = 2")

    retry(work, sleep=lambda seconds: None)

    assert table.rows("SELECT sum(n) AS n FROM t") == [{"n": 2}]


def test_the_next_transaction_is_not_serializable_because_the_last_was(table: Database) -> None:
    with table.transaction(serializable=True):
        pass

    level = table.rows("SELECT current_setting('transaction_isolation') AS level")
    assert level == [{"level": "read committed"}]


def test_a_missing_table_says_how_to_migrate(empty: str) -> None:
    with Database(empty) as database, pytest.raises(StoreNotReady, match="penstock store migrate"):
        database.rows("SELECT * FROM hive")


def test_a_database_that_does_not_exist_is_unavailable_by_name(migrated: str) -> None:
    with (
        Database(with_name(migrated, "nowhere")) as database,
        pytest.raises(StoreUnavailable, match="nowhere"),
    ):
        database.rows("SELECT 1")


def test_a_wrong_password_is_said_to_be_one(plain: str) -> None:
    with (
        Database(plain.replace("p%40ss%2Fword", "wrong")) as database,
        pytest.raises(StoreUnavailable, match="password authentication failed"),
    ):
        database.rows("SELECT 1")


def test_a_mistake_of_ours_keeps_its_own_type(database: Database) -> None:
    with pytest.raises(psycopg.errors.SyntaxError):
        database.rows("SELEKT 1")


@pytest.mark.parametrize("url", ["mysql://localhost/x", "penstock", "postgresql://h:p:q/x?y"])
def test_what_is_no_postgresql_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="database URL"):
        Database(url)


def test_a_full_disk_is_said_in_words(table: Database) -> None:
    # The server's words for it, without filling one.
    table.execute("""
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'could not extend file "base/5/1": No space left on device'
                USING ERRCODE = '53100';
        END $$
    """)
    table.execute(
        "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION full_disk()"
    )

    with pytest.raises(StoreFull, match="is full: free some space"):
        table.execute("INSERT INTO t VALUES (3, 0)")
