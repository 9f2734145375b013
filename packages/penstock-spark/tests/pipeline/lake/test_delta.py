"""A Delta table, in a directory and in an object store: exactly once, durable, reported."""

from __future__ import annotations

import os
import pickle
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PreconditionFailed
from penstock_spark.lake.data_file import DataFile, DataFileWriter
from penstock_spark.lake.delta import LakeTable
from penstock_spark.lake.file_reader import CorruptFile
from penstock_spark.lake.storage import StorageLocation, StorageUnavailable
from tests.pipeline.cloud_stores import CloudStore
from tests.pipeline.object_store import ObjectStore, faulty

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("batch", pa.int64()),
        ("shard", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("day", pa.date32()),
    ]
)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def rows(batch: int, count: int = 8, days: int = 1) -> pa.Table:
    made = [
        {
            "number": number,
            "batch": batch,
            "shard": number % 4,
            "at": NOON + timedelta(days=number % days, microseconds=number),
            "name": f"n{number}",
            "headers": [("k", "v")],
            "body": b"\x00\xff",
            "day": (NOON + timedelta(days=number % days)).date(),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def written(table: LakeTable, batch: int, count: int = 8, days: int = 1) -> list[DataFile]:
    writer = DataFileWriter(table.location, SCHEMA, ("day",), "shard")
    writer.add(rows(batch, count, days))
    return writer.close()


def content(table: LakeTable) -> list[tuple[int, int]]:
    found = [table.read_file(file) for file in table.files()]
    return sorted((row["batch"], row["number"]) for part in found for row in part.to_pylist())


def batch_of(batch: int, count: int = 8) -> list[tuple[int, int]]:
    return [(batch, number) for number in range(count)]


@pytest.fixture(params=["directory", "s3", "azure", "azurite", "google"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StorageLocation:
    if request.param == "directory":
        return StorageLocation.parse(tmp_path)
    store: ObjectStore | CloudStore = request.getfixturevalue(request.param)
    return store.location(tmp_path.name)


def created(location: StorageLocation) -> LakeTable:
    table = LakeTable(location / "silver" / "facts", "silver.facts")
    table.create(SCHEMA, ("day",))
    return table


@pytest.fixture
def local(tmp_path: Path) -> LakeTable:
    return created(StorageLocation.parse(tmp_path))


def test_a_batch_is_committed_once(location: StorageLocation) -> None:
    table = created(location)

    assert table.commit("flow", 0, written(table, 0))
    assert not table.commit("flow", 0, written(table, 0))
    # Also by another process, which delta-rs alone would let through.
    again = pickle.loads(pickle.dumps(table))
    again.create(SCHEMA, ("day",))
    assert not again.commit("flow", 0, written(again, 0))
    assert again.commit("other", 0, written(again, 1))

    assert content(table) == batch_of(0) + batch_of(1)
    assert (table.last_transaction("flow"), table.last_transaction("none")) == (0, None)


def test_a_batch_replaces_itself_also_after_files_were_merged(location: StorageLocation) -> None:
    table = created(location)
    for batch in range(3):
        table.commit("flow", batch, written(table, batch))
    table.commit("flow", 2, written(table, 2, count=3), replace_by="batch")
    assert content(table) == batch_of(0) + batch_of(1) + batch_of(2, 3)

    done = table.optimize()
    table.commit("flow", 2, written(table, 2, count=5), replace_by="batch")

    assert (done.files_removed, done.files_added) == (3, 1)
    assert content(table) == batch_of(0) + batch_of(1) + batch_of(2, 5)
    table.commit("flow", 2, [], replace_by="batch")
    assert content(table) == batch_of(0) + batch_of(1)
    assert table.last_transaction("flow") == 2


def test_statistics_select_files_and_row_groups(local: LakeTable) -> None:
    files = written(local, 0, count=40_000, days=2)
    local.commit("flow", 0, files)

    (first, second) = local.files()
    assert local.files() == files
    assert first.partition == {"day": "2026-11-15"}
    assert first.rows == second.rows == 20_000
    assert (first.lower["batch"], first.upper["shard"], first.nulls["name"]) == (0, 2, 0)
    assert local.files(day=(date(2026, 11, 16), date(2026, 12, 1))) == [second]
    assert local.files(at=(NOON + timedelta(hours=1), NOON + timedelta(days=9))) == [second]
    assert local.files(batch=(1, 5)) == []


def test_columns_are_added_and_not_changed(local: LakeTable) -> None:
    local.commit("flow", 0, written(local, 0))
    local.create(SCHEMA.append(pa.field("late", pa.float64())), ("day",))

    assert local.read_file(local.files()[0])["late"].null_count == 8
    with pytest.raises(PreconditionFailed, match="column number is int64, not string"):
        local.create(pa.schema([("number", pa.string())]), ("day",))
    with pytest.raises(PreconditionFailed, match="partitioned by day, not by nothing"):
        local.create(SCHEMA)


def test_a_former_version_is_restored(local: LakeTable) -> None:
    local.commit("flow", 0, written(local, 0))
    before = local.version
    local.commit("flow", 1, written(local, 1))
    local.restore(before)

    assert content(local) == batch_of(0)
    assert not local.commit("flow", 1, written(local, 1))
    assert [each["operation"] for each in local.history(2)] == ["RESTORE", "WRITE"]


def test_vacuum_deletes_only_what_no_version_needs(local: LakeTable) -> None:
    for batch in range(3):
        local.commit("flow", batch, written(local, batch))
    written(local, 9)  # of a killed writer
    local.optimize()

    assert local.vacuum() == 0
    assert local.vacuum(timedelta()) == 4
    assert content(local) == batch_of(0) + batch_of(1) + batch_of(2)


def test_writers_of_several_applications_do_not_disturb_each_other(local: LakeTable) -> None:
    def work(application: str) -> None:
        table = LakeTable(local.location, local.name)
        for batch in range(10):
            assert table.commit(application, batch, written(table, batch, count=1))

    threads = [threading.Thread(target=work, args=(f"flow-{each}",)) for each in range(2)]
    for each in threads:
        each.start()
    for _ in range(3):
        local.optimize()
    for each in threads:
        each.join()

    assert content(local) == sorted(batch_of(batch, 1)[0] for batch in range(10) for _ in range(2))


def test_a_writer_that_was_replaced_cannot_commit(local: LakeTable) -> None:
    local.commit("writer", 1, ())
    local.commit("flow", 0, written(local, 0), expect=("writer", 1), transactions={"at": 8})
    LakeTable(local.location).commit("writer", 2, ())

    with pytest.raises(PreconditionFailed, match="writer has changed"):
        local.commit("flow", 1, written(local, 1), expect=("writer", 1))
    assert content(local) == batch_of(0)
    assert local.transactions() == {"flow": 0, "writer": 2, "at": 8}
    for batch in range(1, 25):  # also from a checkpoint
        local.commit("flow", batch, ())
    assert local.transactions() == {"flow": 24, "writer": 2, "at": 8}


def test_commits_cost_the_same_after_many(local: LakeTable) -> None:
    for batch in range(45):
        local.commit("flow", batch, written(local, batch, count=1))

    log = local.location.path / "_delta_log"  # type: ignore[operator]
    assert [path.name[18:20] for path in sorted(log.glob("*.checkpoint.parquet"))] == ["20", "40"]
    assert local.size().files == 45


# Durability


def test_everything_is_synced_when_a_commit_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut after it loses nothing: no file or folder of the table waits to be written."""
    synced: dict[Path, int] = {}
    fsync = os.fsync

    def record(handle: int) -> None:
        fsync(handle)
        synced[Path(f"/proc/self/fd/{handle}").readlink()] = os.fstat(handle).st_mtime_ns

    monkeypatch.setattr(os, "fsync", record)
    table = created(StorageLocation.parse(tmp_path))

    def unsynced() -> set[Path]:
        found = {tmp_path, *tmp_path.rglob("*")}
        return {path for path in found if synced.get(path) != path.stat().st_mtime_ns}

    assert unsynced() == set()
    for batch in range(21):  # with a checkpoint
        table.commit("flow", batch, written(table, batch, days=2))
        assert unsynced() == set()
    table.commit("flow", 20, written(table, 20, count=3), replace_by="batch")
    assert unsynced() == set()
    table.optimize()
    assert unsynced() == set()


@pytest.mark.parametrize("cut", [0, 0.5, 0.98])
def test_an_incomplete_commit_of_a_power_cut_is_set_aside(local: LakeTable, cut: float) -> None:
    local.commit("flow", 0, written(local, 0))
    local.commit("flow", 1, written(local, 1))
    entry = local.location.path / "_delta_log" / f"{local.version:020}.json"  # type: ignore[operator]
    entry.write_bytes(entry.read_bytes()[: round(entry.stat().st_size * cut)])

    after = LakeTable(local.location)

    assert after.last_transaction("flow") == 0
    assert after.commit("flow", 1, written(after, 1))
    assert content(after) == batch_of(0) + batch_of(1)


@pytest.mark.parametrize("size", [0, 100])
def test_an_incomplete_checkpoint_of_a_power_cut_is_set_aside(local: LakeTable, size: int) -> None:
    for batch in range(21):
        local.commit("flow", batch, written(local, batch, count=1))
    (checkpoint,) = (local.location.path / "_delta_log").glob("*.checkpoint.parquet")  # type: ignore[operator]
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])

    after = LakeTable(local.location)

    assert after.last_transaction("flow") == 20
    assert len(content(after)) == 21


def test_a_damaged_file_is_named_with_its_table_and_batch(local: LakeTable) -> None:
    local.commit("flow", 7, written(local, 7))
    (file,) = local.files()
    (local.location.path / file.path).write_bytes(b"PAR1 and nothing else")  # type: ignore[operator]

    with pytest.raises(CorruptFile, match=rf"table silver.facts: file .*{file.path} \(batch 7\)"):
        local.read_file(file)


# Object stores


def test_an_answer_that_is_lost_does_not_commit_twice(s3: ObjectStore, name: str) -> None:
    lost: list[str] = []

    def lose_first(method: str, path: str) -> str:
        if method == "PUT" and path.endswith("2.json") and path not in lost:
            lost.append(path)
            return "lose"
        return "pass"

    with faulty(s3, lose_first) as port:
        created(s3.location(name))
        table = LakeTable(s3.location(name, port) / "silver" / "facts")
        direct = LakeTable(s3.location(name) / "silver" / "facts")
        for batch in range(4):
            assert table.commit("flow", batch, written(direct, batch))

    assert len(lost) == 1
    assert content(direct) == [each for batch in range(4) for each in batch_of(batch)]


@pytest.mark.parametrize(("status", "error"), [(403, AccessRefused), (503, StorageUnavailable)])
def test_a_store_that_refuses_is_reported_and_loses_nothing(
    s3: ObjectStore, name: str, status: int, error: type[Exception]
) -> None:
    failing = threading.Event()

    def refuse(method: str, path: str) -> str | int:
        return status if failing.is_set() and method == "PUT" else "pass"

    with faulty(s3, refuse) as port:
        direct = created(s3.location(name))
        where = s3.location(name, port, max_retries="1", retry_timeout="1s")
        table = LakeTable(where / "silver" / "facts")
        files = written(direct, 0)
        assert table.exists()
        failing.set()
        with pytest.raises(error, match="s3://lake"):
            table.commit("flow", 0, files)
        failing.clear()
        assert table.commit("flow", 0, files)

    assert content(direct) == batch_of(0)


def test_a_store_that_is_slow_is_given_up_and_asked_again(s3: ObjectStore, name: str) -> None:
    slow = threading.Event()
    released = threading.Event()

    def delay(method: str, path: str) -> str:
        if slow.is_set() and method == "PUT":
            released.wait(30)
        return "pass"

    with faulty(s3, delay) as port:
        direct = created(s3.location(name))
        where = s3.location(name, port, max_retries="0", timeout="1s")
        table = LakeTable(where / "silver" / "facts")
        files = written(direct, 0)
        assert table.exists()
        slow.set()
        with pytest.raises(StorageUnavailable):
            table.commit("flow", 0, files)
        slow.clear()
        released.set()  # the late request arrives now, beside the next attempt
        table.commit("flow", 0, files)

    assert content(direct) == batch_of(0)


# Locations


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://host/x", "should be a path or begin with s3://"),
        ("s3://", "should be like s3://container/prefix"),
        ("s3://lake/x?a=b", "should be like s3://container/prefix"),
        ("", "the path is empty"),
    ],
)
def test_a_wrong_location_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        StorageLocation.parse(url)


def test_secrets_of_a_location_are_not_shown() -> None:
    location = StorageLocation.parse("s3://lake/x", {"AWS_SECRET_ACCESS_KEY": "secret"})

    assert "secret" not in repr(location / "table")
    assert (location / "table").storage_options["aws_secret_access_key"] == "secret"


def test_a_table_that_nobody_created_is_not_found(location: StorageLocation) -> None:
    with pytest.raises(NotFound, match="no table 'facts'"):
        LakeTable(location / "facts").files()
