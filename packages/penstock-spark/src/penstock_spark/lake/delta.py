"""A Delta table that this process writes: exactly once, durably, at a constant cost per commit.

    table = LakeTable(StorageLocation.parse("s3://lake/orders"))
    table.create(schema, partition_by=("day",))
    table.commit("orders", batch, writer.close())     # False: batch `batch` was committed before

`deltalake` (delta-rs) reads and writes the log. What it leaves to its caller is here:

* **Exactly once.** A commit carries the application's transaction (its name and a version that
  grows), which is compared with the table's before each attempt. An attempt whose answer was lost
  is found by its files, and is not made again.
* **Durability.** delta-rs syncs nothing. On a local disk, files, folders and the log are synced
  before `commit` returns. A log file that a power cut has left incomplete was never acknowledged;
  it is set aside when the table is opened.
* **Constant cost.** The open table is updated by new log entries; checkpoints and the removal of
  expired entries bound what is read.

Threads may share a table. It is picklable; each process opens its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock_spark.lake.data_file import DataFile, DataFileWriter, partition_value, statistic
from penstock_spark.lake.storage import (
    StorageLocation,
    StorageUnavailable,
    error_text,
    fsync_folders,
    fsync_path,
    storage_errors,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import CommitProperties
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)

TARGET_FILE_BYTES: Final = 128 * MiB
#: How long files stay after they left the table, for readers that have planned to read them.
GRACE: Final = timedelta(hours=1)
_CHECKPOINT_COMMITS: Final = 20
#: How far back versions can be read. Every commit lists the log's folder, so it has to stay short.
_LOG_RETENTION: Final = {"delta.logRetentionDuration": "interval 1 hours"}
#: Attempts when others commit at the same time.
_MAX_ATTEMPTS: Final = 30
_LOG: Final = "_delta_log"


class CorruptFile(PreconditionFailed):
    """A file of a table that cannot be read: missing, cut, or changed."""


@dataclass(frozen=True, slots=True)
class TableSize:
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    files_removed: int
    files_added: int


class LakeTable:
    def __init__(self, location: StorageLocation, name: str | None = None) -> None:
        self.location = location
        self.name = name or location.name
        self._lock = threading.RLock()
        self._table: DeltaTable | None = None
        self._arrow: tuple[int, pa.Schema] | None = None

    def __reduce__(self) -> tuple[type[LakeTable], tuple[StorageLocation, str]]:
        return type(self), (self.location, self.name)

    # Definition

    def exists(self) -> bool:
        try:
            self._refreshed()
        except NotFound:
            return False
        return True

    def create(
        self,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """Create the table if it does not exist, and add columns that it lacks."""
        from deltalake import DeltaTable

        if not self.exists():
            settings = {**_LOG_RETENTION, **(configuration or {})}
            if self.location.path is not None:
                self.location.path.mkdir(parents=True, exist_ok=True)
            with storage_errors(self.location):
                DeltaTable.create(
                    self.location.url,
                    schema,
                    mode="ignore",
                    partition_by=list(partition_by),
                    name=self.name,
                    configuration=settings,
                    storage_options=self.location.storage_options,
                )
            self._sync_log(0, self._refreshed().version())
            if (path := self.location.path) is not None:
                for folder in (path, *path.parents[:3]):  # bronze/flow/table
                    fsync_path(folder)
        if tuple(partition_by) != self.partition_by:
            raise PreconditionFailed(
                f"table {self.name} is partitioned by {', '.join(self.partition_by) or 'nothing'}, "
                f"not by {', '.join(partition_by) or 'nothing'}"
            )
        self.add_columns(schema)

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns, and the fields of structs, that the table lacks; a column of another
        type is an error."""
        from deltalake import Schema

        with self._lock:
            known = self.schema
            for each in schema:
                if each.name in known.names and not _extends(
                    known.field(each.name).type, each.type
                ):
                    raise PreconditionFailed(
                        f"table {self.name}: column {each.name} is {known.field(each.name).type}, "
                        f"not {each.type}"
                    )
            # Rows from before the column are null.
            new = [
                each.with_nullable(True)
                for each in schema
                if each.name not in known.names or not _same_type(known.field(each.name), each)
            ]
            if new:
                before = self._refreshed().version()
                with storage_errors(self.location):
                    self._refreshed().alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
                self._sync_log(before + 1, self._refreshed().version())

    @property
    def schema(self) -> pa.Schema:
        table = self._refreshed()
        # Reading the schema of Delta is slow; it changes with the version only.
        if self._arrow is None or self._arrow[0] != table.version():
            self._arrow = table.version(), pa.schema(table.schema().to_arrow())
        return self._arrow[1]

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._refreshed().metadata().partition_columns)

    @property
    def version(self) -> int:
        return self._refreshed().version()

    # Commits

    def last_transaction(self, application: str) -> int | None:
        """The version of the application's last commit."""
        found = self._refreshed().transaction_version(application)
        return None if found is None else int(found)

    def commit(
        self,
        application: str,
        version: int,
        files: Sequence[DataFile],
        *,
        replace_by: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        guard: Callable[[], None] | None = None,
    ) -> bool:
        """Add files as a version of an application, once: False if it was committed before.

        With `replace_by`, a column that has the version, an earlier commit is replaced instead.
        `metadata` is shown in the history. `guard` is called before each attempt on the state that
        the commit continues, and raises to prevent it.
        """
        if (root := self.location.path) is not None and files:
            with storage_errors(self.location):
                fsync_folders(root, (file.path for file in files))
        with self._lock:
            for attempt in range(_MAX_ATTEMPTS):
                last = self.last_transaction(application)
                if guard is not None:
                    guard()
                removed: list[DataFile] = []
                added = list(files)
                if last is not None and last >= version:
                    if attempt and self._has(files):
                        return True  # only the answer was lost
                    if replace_by is None:
                        return False
                    removed, kept = self._without(replace_by, version)
                    added += kept
                    if not removed and not added:
                        return True
                transaction = (application, max(version, last if last is not None else version))
                if self._try_commit(added, removed, transaction, metadata):
                    return True
                time.sleep(0.01 * attempt)
        raise StorageUnavailable(f"table {self.name}: others commit all the time")

    def _try_commit(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any] | None,
    ) -> bool:
        """One attempt on the current state: False if the state has changed, or perhaps."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import RemoveAction, Transaction

        table = self._opened()
        now = round(time.time() * 1000)
        actions = [
            *(_add_action(file, now) for file in added),
            *(
                RemoveAction(file.path, True, now, file.bytes, dict(file.partition))
                for file in removed
            ),
        ]
        properties = _properties([Transaction(*transaction)], metadata)
        before = table.version()
        try:
            with storage_errors(self.location):
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=list(table.metadata().partition_columns),
                    commit_properties=properties,
                    post_commithook_properties=_no_hooks(),
                )
        except CommitFailedError as error:
            log.debug("commit conflict", table=self.name, error=error_text(error))
            self._table = None
            return False
        except StorageUnavailable:
            self._table = None
            # The commit may have happened.
            if self.last_transaction(transaction[0]) == transaction[1] and self._has(added):
                return True
            raise
        self._sync_log(before + 1, self._refreshed().version())
        self._maintain(before)
        return True

    def _has(self, files: Sequence[DataFile]) -> bool:
        """Whether the table has one of these files, and so all of them."""
        return bool(files) and any(file.path == files[0].path for file in self.files())

    def _without(self, column: str, value: int) -> tuple[list[DataFile], list[DataFile]]:
        """The files with rows of a value, and new files with their other rows."""
        found = [file for file in self.files() if file.may_contain(column, value, value)]
        mixed = [
            file
            for file in found
            if (file.lower.get(column), file.upper.get(column)) != (value, value)
        ]
        if not mixed:
            return found, []
        writer = DataFileWriter(self.location, self.schema, self.partition_by)
        for file in mixed:
            rows = self.read_file(file)
            writer.add(rows.filter(pc.not_equal(rows[column], value)))
        kept = writer.close()
        if (root := self.location.path) is not None:
            fsync_folders(root, (file.path for file in kept))
        return found, kept

    # Content

    def files(self, **between: tuple[Any, Any]) -> list[DataFile]:
        """The files in order of commits, or those that may have values of columns in ranges:
        `files(day=(date(2026, 11, 1), date(2026, 11, 7)))`."""
        table = self._refreshed()
        with storage_errors(self.location):
            actions = pa.table(table.get_add_actions(flatten=True))
        found = _data_files(actions)
        for column, (first, last) in between.items():
            found = [file for file in found if file.may_contain(column, first, last)]
        return found

    def size(self) -> TableSize:
        actions = pa.table(self._refreshed().get_add_actions(flatten=True))
        rows, size = (pc.sum(actions[name]).as_py() or 0 for name in ("num_records", "size_bytes"))
        return TableSize(rows, size, actions.num_rows)

    def read_file(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        """A file's rows with its partition's values."""
        return read_file(self.location, file, self.schema, columns, self.name)

    def read(self, spark: SparkSession, files: Sequence[DataFile] | None = None) -> DataFrame:
        """The current content, or that of some files, for Spark without Delta's jar.

        Later commits do not change it; its files exist for at least an hour.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        found = self.files() if files is None else files
        arrow = self.schema
        schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        if not found:
            return spark.createDataFrame([], schema)
        if self.location.path is None:
            return _read_by_workers(spark, self.location, found, arrow, self.name)
        paths = [f"{self.location.url}/{file.path}" for file in found]
        reader = spark.read.schema(schema).option("basePath", self.location.url)
        return reader.parquet(*paths).select(*arrow.names)

    def dataset(self) -> Any:
        """The current content as a dataset of Arrow, for DuckDB, Polars and pandas."""
        with storage_errors(self.location):
            return self._refreshed().to_pyarrow_dataset()

    # Versions

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first, as far as the log has them."""
        with storage_errors(self.location):
            return list(self._refreshed().history(limit))

    def restore(self, target: int | datetime) -> None:
        """Make a former version, or that of a time, the current content by a new commit.

        Transactions are not undone: what was committed once is not committed again.
        """
        with self._lock, self._changed():
            self._refreshed().restore(target, commit_properties=_properties())

    def optimize(
        self, target: int = TARGET_FILE_BYTES, **between: tuple[str, str]
    ) -> OptimizeResult:
        """Merge small files into large ones, beside writers and readers.

        `between` limits it to partitions: `optimize(day=("2026-11-01", "2026-11-07"))`.
        """
        from deltalake.writer import WriterProperties

        filters = [
            (column, sign, value)
            for column, pair in between.items()
            for sign, value in zip((">=", "<="), pair, strict=True)
        ]
        with self._changed():
            done = self._refreshed().optimize.compact(
                partition_filters=filters or None,
                target_size=target,
                max_concurrent_tasks=1,
                writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
                commit_properties=_properties(),
                post_commithook_properties=_no_hooks(),
            )
        return OptimizeResult(done["numFilesRemoved"], done["numFilesAdded"])

    def vacuum(self, retention: timedelta = GRACE) -> int:
        """Delete files that left the table, or never were in it, longer ago; returns how many."""
        with self._changed():
            table = self._refreshed()
            deleted = table.vacuum(
                retention_hours=round(retention.total_seconds() / 3600),
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                commit_properties=_properties(),
                post_commithook_properties=_no_hooks(),
            )
        return len(deleted)

    def drop(self) -> None:
        with self._lock:
            self._table = None
            self.location.delete()

    # The open table

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        with self._lock:
            if self._table is None:
                path = self.location.path
                if path is not None and not (path / _LOG).is_dir():
                    raise NotFound(f"the lake has no table {self.name!r}")
                options = self.location.storage_options
                try:
                    with storage_errors(self.location):
                        self._table = DeltaTable(self.location.url, storage_options=options)
                except TableNotFoundError:
                    raise NotFound(f"the lake has no table {self.name!r}") from None
                except DeltaError:
                    if path is None or not _set_incomplete_aside(path / _LOG, self.name):
                        raise
                    self._table = DeltaTable(self.location.url)
            return self._table

    def _refreshed(self) -> DeltaTable:
        with self._lock:
            opened = self._table is not None
            table = self._opened()
            if opened:
                with storage_errors(self.location):
                    table.update_incremental()
            return table

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Sync and maintain the log after commits in the block."""
        before = self._refreshed().version()
        with storage_errors(self.location):
            yield
        after = self._refreshed().version()
        if after > before:
            self._sync_files(before)
            self._sync_log(before + 1, after)
            self._maintain(before)

    def _sync_files(self, before: int) -> None:
        """Sync files that delta-rs wrote after a version."""
        if (root := self.location.path) is None:
            return
        written = []
        for version in range(before + 1, self._opened().version() + 1):
            for line in _log_file(root, version).read_text().splitlines():
                if (added := json.loads(line).get("add")) is not None:
                    written.append(unquote(added["path"]))
        for file in written:
            with suppress(FileNotFoundError):  # replaced and deleted since
                fsync_path(root / file)
        fsync_folders(root, written)

    def _sync_log(self, first: int, last: int) -> None:
        if (root := self.location.path) is None:
            return
        with storage_errors(self.location):
            for version in range(first, last + 1):
                with suppress(FileNotFoundError):  # expired
                    fsync_path(_log_file(root, version))
            fsync_path(root / _LOG)

    def _maintain(self, before: int) -> None:
        """Write a checkpoint, and remove expired log entries, from time to time."""
        table = self._opened()
        version = table.version()
        if before // _CHECKPOINT_COMMITS == version // _CHECKPOINT_COMMITS:
            return
        try:
            table.create_checkpoint()
            if (root := self.location.path) is not None:
                for path in (root / _LOG).glob(f"{version:020}.checkpoint*.parquet"):
                    fsync_path(path)
                fsync_path(root / _LOG / "_last_checkpoint")
                fsync_path(root / _LOG)
            table.cleanup_metadata()
            # An open table keeps every entry since it was opened, and each commit reads them.
            self._table = None
        except Exception as error:  # the commit has happened; the next one tries again
            log.warning(
                "checkpoint failed", table=self.name, version=version, reason=error_text(error)
            )


def read_file(
    location: StorageLocation,
    file: DataFile,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    table: str = "",
) -> pa.Table:
    """Columns of a file in the types of the table; columns that it lacks are null."""
    wanted = schema.names if columns is None else columns
    with readable(location, file, table), storage_errors(location):
        with pq.ParquetFile(location.filesystem().open_input_file(file.path)) as opened:
            present = set(opened.schema_arrow.names)
            rows = opened.read([name for name in wanted if name in present], use_threads=False)
    return with_partition(rows, file, schema, wanted)


def with_partition(
    rows: pa.Table, file: DataFile, schema: pa.Schema, wanted: Sequence[str]
) -> pa.Table:
    """The wanted columns, in order and in the types of the schema."""
    columns = []
    for name in wanted:
        kind = schema.field(name).type
        if name in file.partition:
            value = pa.scalar(file.partition[name], pa.string()).cast(kind)
            columns.append(pa.repeat(value, rows.num_rows))
        elif name in rows.schema.names:
            columns.append(rows[name].cast(kind))
        else:
            columns.append(pa.nulls(rows.num_rows, kind))
    return pa.table(columns, names=list(wanted))


@contextmanager
def readable(location: StorageLocation, file: DataFile, table: str) -> Iterator[None]:
    """Report a file that is missing or damaged."""
    try:
        yield
    except (pa.ArrowException, FileNotFoundError) as error:
        raise _corrupt(location, file, table, error_text(error)) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        # Arrow's own error for damaged pages.
        raise _corrupt(location, file, table, error_text(error)) from error


def _corrupt(location: StorageLocation, file: DataFile, table: str, reason: str) -> CorruptFile:
    first, last = file.lower.get("batch"), file.upper.get("batch")
    batches = "" if first is None else f" (batch {first})" if first == last else (
        f" (batches {first} to {last})"
    )  # fmt: skip
    return CorruptFile(
        f"table {table or location.name}: file {location}/{file.path}{batches} with {file.rows:,} "
        f"rows cannot be read: {reason}"
    )


def _read_by_workers(
    spark: SparkSession,
    location: StorageLocation,
    files: Sequence[DataFile],
    schema: pa.Schema,
    table: str,
) -> DataFrame:
    """Workers read the files with Arrow: Spark needs no library for the store."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                rows = read_file(location, files[number], schema, table=table)
                yield from rows.combine_chunks().to_batches(max_chunksize=65_536)

    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return spark.range(0, len(files), 1, min(len(files), 256)).mapInArrow(read, columns)


def _data_files(actions: pa.Table) -> list[DataFile]:
    """From delta-rs' table of add actions, the oldest first."""
    parts: dict[str, dict[str, list[Any]]] = {
        "partition.": {},
        "min.": {},
        "max.": {},
        "null_count.": {},
    }
    for name in actions.schema.names:
        for prefix, columns in parts.items():
            if name.startswith(prefix):
                columns[name.removeprefix(prefix)] = actions[name].to_pylist()
    partition, lower, upper, nulls = parts.values()
    found = []
    order = actions["modification_time"].to_pylist()
    for row, (path, size, rows) in enumerate(
        zip(
            *(actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")),
            strict=True,
        )
    ):
        found.append(
            DataFile(
                unquote(path),
                rows or 0,
                size,
                {name: partition_value(values[row]) for name, values in partition.items()},
                _known(lower, row),
                _known(upper, row),
                _known(nulls, row),
            )
        )
    return [
        file
        for _, file in sorted(
            zip(order, found, strict=True), key=lambda pair: (pair[0], pair[1].path)
        )
    ]


def _known(columns: Mapping[str, list[Any]], row: int) -> dict[str, Any]:
    return {
        name: statistic(values[row]) for name, values in columns.items() if values[row] is not None
    }


def _add_action(file: DataFile, now: int) -> Any:
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": dict(file.lower),
        "maxValues": dict(file.upper),
        "nullCount": dict(file.nulls),
    }
    return AddAction(file.path, file.bytes, dict(file.partition), now, True, json.dumps(stats))


def _properties(
    transactions: list[Any] | None = None, metadata: Mapping[str, Any] | None = None
) -> CommitProperties:
    from deltalake.transaction import CommitProperties

    return CommitProperties(
        custom_metadata=dict(metadata) if metadata else None,
        # Each attempt of an application begins with a look at its last transaction.
        max_commit_retries=0 if transactions else None,
        app_transactions=transactions,
    )


def _no_hooks() -> Any:
    """Checkpoints are written by `_maintain`, which syncs them."""
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _same_type(known: pa.Field, given: pa.Field) -> bool:
    if known.type == given.type:
        return True
    return bool(
        pa.types.is_map(known.type)
        and pa.types.is_map(given.type)
        and (known.type.key_type, known.type.item_type)
        == (given.type.key_type, given.type.item_type)
    )


def _extends(known: pa.DataType, given: pa.DataType) -> bool:
    """Whether a type is the known one, or has more fields in its structs."""
    if known == given:
        return True
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        names = {each.name for each in given}
        return all(
            each.name in names and _extends(each.type, given.field(each.name).type)
            for each in known
        )
    if pa.types.is_list(known) and pa.types.is_list(given):
        return _extends(known.value_type, given.value_type)
    if pa.types.is_map(known) and pa.types.is_map(given):
        return known.key_type == given.key_type and _extends(known.item_type, given.item_type)
    return False


def _log_file(root: Path, version: int) -> Path:
    return root / _LOG / f"{version:020}.json"


def _set_incomplete_aside(folder: Path, table: str) -> bool:
    """Rename what a power cut has left: an incomplete last entry, or checkpoint."""
    incomplete = []
    entries = sorted(folder.glob("*[0-9].json"))
    if entries and not _is_complete(entries[-1]):
        incomplete.append(entries[-1])
    for path in folder.glob("*.checkpoint*.parquet"):
        try:
            pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            incomplete += [path, *folder.glob("_last_checkpoint")]
    for path in dict.fromkeys(incomplete):
        path.rename(path.with_name(f".{path.name}.incomplete"))
        log.warning("incomplete log entry set aside", table=table, file=path.name)
    fsync_path(folder)
    return bool(incomplete)


def _is_complete(path: Path) -> bool:
    try:
        for line in path.read_text().splitlines():
            json.loads(line)
    except ValueError:
        return False
    return True
