"""Which files are a table: entries, compactions, and what readers make of them. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_spark.lake.log import (
    CompactionEntry,
    DataFile,
    TableLog,
    TableLogEntry,
    write_atomically,
)

DAY = "2026-11-15"
NEXT = "2026-11-16"


def file(batch: int, day: str = DAY, path: str = "", last: int | None = None) -> DataFile:
    return DataFile(
        path or f"data/{batch}-{day}", day, 10, 100, batch, batch if last is None else last
    )


@pytest.fixture
def log(tmp_path: Path) -> TableLog:
    return TableLog(tmp_path / "log-0")


def test_a_table_nobody_has_written_is_empty(log: TableLog) -> None:
    assert log.files() == []
    assert log.batches() == []
    assert log.entry(0) is None


def test_an_entry_comes_back_as_it_was_published(log: TableLog) -> None:
    entry = TableLogEntry(7, (file(7), file(7, NEXT)), {"ends": {"sensors": 12}})

    log.publish(entry)

    assert log.entry(7) == entry
    assert log.files() == list(entry.files)


def test_publishing_a_batch_again_replaces_it(log: TableLog) -> None:
    log.publish(TableLogEntry(7, (file(7, path="data/first"),)))
    log.publish(TableLogEntry(7, (file(7, path="data/second"),)))

    assert [each.path for each in log.files()] == ["data/second"]


def test_a_compaction_stands_for_the_batches_it_came_from(log: TableLog) -> None:
    for batch in range(5):
        log.publish(TableLogEntry(batch, (file(batch),)))
    merged = file(0, path="data/merged", last=3)

    log.publish(CompactionEntry(DAY, 3, (merged,)))

    assert log.files() == [merged, file(4)]


def test_a_compaction_stands_for_its_day_only(log: TableLog) -> None:
    log.publish(TableLogEntry(0, (file(0), file(0, NEXT))))

    log.publish(CompactionEntry(DAY, 0, (file(0, path="data/merged"),)))

    assert {each.path for each in log.files()} == {"data/merged", f"data/0-{NEXT}"}


def test_a_half_written_entry_is_not_there(log: TableLog, tmp_path: Path) -> None:
    log.publish(TableLogEntry(0, (file(0),)))
    (log.folder / ".000000000001.json.99").write_text('{"batch": 1, "fi')

    assert log.batches() == [0]


def test_entries_that_vanish_while_a_reader_looks_are_in_the_compaction(
    log: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(3):
        log.publish(TableLogEntry(batch, (file(batch),)))
    merged = file(0, path="data/merged", last=1)
    read = TableLog.entry

    def compacted_meanwhile(self: TableLog, batch: int) -> TableLogEntry | None:
        if batch == 0:
            log.publish(CompactionEntry(DAY, 1, (merged,)))
            log.remove(0)
            log.remove(1)
        return read(self, batch)

    monkeypatch.setattr(TableLog, "entry", compacted_meanwhile)

    assert log.files() == [merged, file(2)]


@settings(deadline=None, max_examples=25)  # it syncs files
@given(cuts=st.lists(st.integers(0, 9), max_size=4))
def test_however_it_is_compacted_every_batch_is_there_once(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = TableLog(tmp_path_factory.mktemp("log"))
    for batch in range(10):
        log.publish(TableLogEntry(batch, (file(batch),)))
    for through in sorted(cuts):
        log.publish(CompactionEntry(DAY, through, (file(0, path=f"data/{through}", last=through),)))

    covered = [batch for each in log.files() for batch in range(each.first, each.last + 1)]

    assert covered == list(range(10))


def test_writing_whole_leaves_nothing_beside(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "file", "one")
    write_atomically(tmp_path / "a" / "file", "two")

    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
    assert (tmp_path / "a" / "file").read_text() == "two"
