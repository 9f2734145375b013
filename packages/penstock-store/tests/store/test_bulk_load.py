"""Batches on their way: staged by tasks that may run twice, merged in one transaction."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_store import (
    AppliedBatches,
    Database,
    StagingTable,
    StoreNotReady,
    copy_batches,
    copy_rows,
    create_staging_table,
    drop_staging_table,
    drop_stale_staging_tables,
    merge_rows,
)
from penstock_store.binary_copy import ColumnTypeMismatch

KEYS = ["day", "stream", "reason"]
COLUMNS = [*KEYS, "count", "last_at"]
ADD = {
    "count": "target.count + excluded.count",
    "last_at": "greatest(target.last_at, excluded.last_at)",
}
NOON = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


def letters(**counts: int) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "reason": list(counts),
            "count": list(counts.values()),
            "day": [NOON.date()] * len(counts),
            "stream": ["sensors"] * len(counts),
            "last_at": pa.array([NOON] * len(counts), pa.timestamp("us", "UTC")),
        }
    )


def staged(database: Database, batch_id: int = 0, flow: str = "gold") -> StagingTable:
    with database.transaction() as connection:
        return create_staging_table(connection, flow, batch_id, "dead_letter_count", COLUMNS)


def merged(database: Database, staging: StagingTable, update: dict[str, str] | None = None) -> int:
    with database.transaction() as connection:
        changed = merge_rows(
            connection, staging, "dead_letter_count", KEYS, ADD if update is None else update
        )
        drop_staging_table(connection, staging)
    return changed


def counts(database: Database) -> dict[str, int]:
    rows = database.rows("SELECT reason, count FROM dead_letter_count")
    return {row["reason"]: row["count"] for row in rows}


def tables(database: Database) -> list[str]:
    rows = database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'staging' ORDER BY 1")
    return [row["tablename"] for row in rows]


def test_staged_rows_are_inserted_or_added_to_what_is_there(database: Database) -> None:
    for batch_id in range(2):
        staging = staged(database, batch_id)
        assert copy_batches(database.url, staging, [letters(short=3, late=batch_id)], part=0) == 2
        assert merged(database, staging) == 2

    assert counts(database) == {"short": 6, "late": 1}


def test_without_an_update_rows_that_are_there_stay(database: Database) -> None:
    for batch_id, count in enumerate((3, 100)):
        staging = staged(database, batch_id)
        copy_batches(database.url, staging, [letters(short=count)], part=0)
        merged(database, staging, {})

    assert counts(database) == {"short": 3}


def test_an_update_may_have_a_condition(database: Database) -> None:
    for batch_id, count in enumerate((5, 3, 8)):
        staging = staged(database, batch_id)
        copy_batches(database.url, staging, [letters(short=count)], part=0)
        with database.transaction() as connection:
            merge_rows(
                connection,
                staging,
                "dead_letter_count",
                KEYS,
                {"count": "excluded.count"},
                where="excluded.count > target.count",
            )

    assert counts(database) == {"short": 8}


def test_parts_are_merged_together(database: Database) -> None:
    staging = staged(database)
    copy_batches(database.url, staging, [letters(a=1), letters(b=2)], part=0)
    copy_batches(database.url, staging, iter([letters(c=3)]), part=1)

    assert merged(database, staging) == 3


def test_a_task_that_is_run_again_leaves_its_rows_once(database: Database) -> None:
    staging = staged(database)
    copy_batches(database.url, staging, [letters(a=1)], part=0)
    for _ in range(2):
        copy_batches(database.url, staging, [letters(b=2)], part=1)
    merged(database, staging)

    assert counts(database) == {"a": 1, "b": 2}


def test_a_task_that_runs_twice_at_a_time_leaves_its_rows_once(database: Database) -> None:
    staging = staged(database)
    threads = [
        threading.Thread(
            target=copy_batches, args=(database.url, staging, [letters(a=1)]), kwargs={"part": 0}
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert merged(database, staging) == 1


def test_a_task_that_fails_leaves_nothing(database: Database) -> None:
    staging = staged(database)

    def batches() -> Any:
        yield letters(a=1)
        raise RuntimeError("the executor is lost")

    with pytest.raises(RuntimeError):
        copy_batches(database.url, staging, batches(), part=0)

    assert merged(database, staging) == 0


def test_a_task_that_comes_too_late_finds_nothing_to_fill(database: Database) -> None:
    staging = staged(database)
    merged(database, staging)

    with pytest.raises(StoreNotReady):
        copy_batches(database.url, staging, [letters(a=1)], part=0)


def test_the_driver_may_fill_in_the_transaction_that_merges(database: Database) -> None:
    with database.transaction() as connection:
        staging = create_staging_table(connection, "gold", 1, "dead_letter_count", COLUMNS)
        copy_rows(connection, staging, [letters(a=1)], part=0)
        merge_rows(connection, staging, "dead_letter_count", KEYS, ADD)
        drop_staging_table(connection, staging)

    assert counts(database) == {"a": 1}


def test_a_staging_table_travels_to_tasks(database: Database) -> None:
    staging = staged(database)

    assert pickle.loads(pickle.dumps(staging)) == staging


def test_a_batch_that_is_staged_again_begins_empty(database: Database) -> None:
    copy_batches(database.url, staged(database), [letters(a=1)], part=0)

    assert merged(database, staged(database)) == 0


def test_what_a_flow_left_is_swept_and_nothing_else(database: Database) -> None:
    staged(database, 1, "gold")
    staged(database, 2, "gold")
    others = staged(database, 1, "gold2")
    with database.transaction() as connection:
        assert drop_stale_staging_tables(connection, "gold") == 2

    assert tables(database) == [others.name]


def test_staging_tables_are_not_written_to_the_log(database: Database) -> None:
    staged(database)

    assert database.rows(
        "SELECT relpersistence::text FROM pg_class WHERE relnamespace = 'staging'::regnamespace"
    ) == [{"relpersistence": "u"}]


def test_a_missing_column_is_named(database: Database) -> None:
    with pytest.raises(
        ColumnTypeMismatch, match="rows for dead_letter_count lack the columns last_at"
    ):
        copy_batches(database.url, staged(database), [letters(a=1).drop_columns("last_at")], part=0)


@pytest.mark.parametrize("flow", ["", "Gold", "a.b", "x" * 21, 'a"b'])
def test_a_flow_has_a_plain_name(database: Database, flow: str) -> None:
    with pytest.raises(ValueError, match="flow name"):
        staged(database, 0, flow)


def test_a_batch_is_applied_once(database: Database) -> None:
    def apply(batch_id: int) -> bool:
        staging = staged(database, batch_id)
        copy_batches(database.url, staging, [letters(a=1)], part=0)
        with database.transaction() as connection:
            if AppliedBatches(connection).applied("gold", batch_id):
                return False
            merge_rows(connection, staging, "dead_letter_count", KEYS, ADD)
            AppliedBatches(connection).mark("gold", batch_id, rows=1)
        return True

    assert [apply(batch_id) for batch_id in (0, 1, 1)] == [True, True, False]
    assert counts(database) == {"a": 2}


def test_marks_of_flows_are_apart(database: Database) -> None:
    with database.transaction() as connection:
        batches = AppliedBatches(connection)
        batches.mark("gold", 7, rows=1)

        assert batches.applied("gold", 7)
        assert not batches.applied("replay", 7)
        assert batches.last("gold") == 7
        assert batches.last("replay") is None


def test_a_mark_is_gone_with_its_transaction(database: Database) -> None:
    def work() -> None:
        with database.transaction() as connection:
            AppliedBatches(connection).mark("gold", 7, rows=1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()

    with database.transaction() as connection:
        assert not AppliedBatches(connection).applied("gold", 7)


def test_old_marks_are_forgotten(database: Database) -> None:
    with database.transaction() as connection:
        batches = AppliedBatches(connection)
        batches.mark("gold", 0, rows=1)
        batches.mark("gold", 1000, rows=1)

        assert not batches.applied("gold", 0)
        assert batches.applied("gold", 1000)


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    batches=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000), max_size=6), max_size=5
    )
)
def test_merging_adds_up_as_a_dictionary_would(
    database: Database, batches: list[dict[str, int]]
) -> None:
    database.execute("DELETE FROM dead_letter_count")
    expected: dict[str, int] = {}
    for batch_id, batch in enumerate(batches):
        for reason, count in batch.items():
            expected[reason] = expected.get(reason, 0) + count
        staging = staged(database, batch_id)
        if batch:
            copy_batches(database.url, staging, [letters(**batch)], part=0)
        merged(database, staging)

    assert counts(database) == expected


def test_who_only_asks_a_database_does_not_load_arrow() -> None:
    program = (
        "import sys, penstock_store\n"
        "assert not {'pyarrow', 'numpy', 'pandas'} & set(sys.modules), set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
