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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock_spark.lake.data_file import DataFile, DataFileWriter
from penstock_spark.lake.delta_log import (
    LOG_FOLDER,
    add_action,
    commit_properties,
    data_files,
    extends,
    is_same_type,
    log_file,
    merge_groups,
    no_hooks,
    set_incomplete_aside,
)
from penstock_spark.lake.file_reader import read_by_workers, read_file
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
        self._created: pa.Schema | None = None

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
        from deltalake.exceptions import CommitFailedError

        if self._created is not None and self._created.equals(schema):
            return
        if not self.exists():
            settings = {**_LOG_RETENTION, **(configuration or {})}
            if self.location.path is not None:
                self.location.path.mkdir(parents=True, exist_ok=True)
            # A conflict: another process was faster, or this one, and the answer was lost.
            with suppress(CommitFailedError), storage_errors(self.location):
                DeltaTable.create(
                    self.location.url,
                    schema,
                    mode="ignore",
                    partition_by=list(partition_by),
                    name=self.name,
                    configuration=settings,
                    raise_if_key_not_exists=False,
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
        self._created = schema

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns, and the fields of structs, that the table lacks; a column of another
        type is an error."""
        for _ in range(_MAX_ATTEMPTS):
            if self._try_add_columns(schema):
                return
        raise StorageUnavailable(f"table {self.name}: others commit all the time")

    def _try_add_columns(self, schema: pa.Schema) -> bool:
        """False if the table has changed meanwhile, perhaps by this attempt."""
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError

        with self._lock:
            known = self.schema
            for each in schema:
                if each.name in known.names and not extends(known.field(each.name).type, each.type):
                    raise PreconditionFailed(
                        f"table {self.name}: column {each.name} is {known.field(each.name).type}, "
                        f"not {each.type}"
                    )
            # Rows from before the column are null.
            new = [
                each.with_nullable(True)
                for each in schema
                if each.name not in known.names or not is_same_type(known.field(each.name), each)
            ]
            if not new:
                return True
            before = self._refreshed().version()
            try:
                with storage_errors(self.location):
                    self._refreshed().alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
            except CommitFailedError:
                self._table = None
                return False
            self._sync_log(before + 1, self._refreshed().version())
            return True

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
    def configuration(self) -> dict[str, str]:
        return dict(self._refreshed().metadata().configuration)

    @property
    def version(self) -> int:
        return self._refreshed().version()

    # Commits

    def last_transaction(self, application: str) -> int | None:
        """The version of the application's last commit."""
        found = self._refreshed().transaction_version(application)
        return None if found is None else int(found)

    def transactions(self) -> dict[str, int]:
        """The last version of every application, read from the log: slow."""
        found: dict[str, int] = {}
        files = self.location.filesystem()
        with storage_errors(self.location):
            hint = self.location.read_json(f"{LOG_FOLDER}/_last_checkpoint")
            first = 0 if hint is None else hint["version"] + 1
            if hint is not None:
                path = f"{LOG_FOLDER}/{hint['version']:020}.checkpoint.parquet"
                with pq.ParquetFile(files.open_input_file(path)) as opened:
                    column = opened.read(["txn"])["txn"]
                found = {row["appId"]: row["version"] for row in column.to_pylist() if row}
            for version in range(first, self.version + 1):
                with files.open_input_stream(f"{LOG_FOLDER}/{version:020}.json") as entry:
                    for line in entry.read().splitlines():
                        if (transaction := json.loads(line).get("txn")) is not None:
                            found[transaction["appId"]] = transaction["version"]
        return found

    def commit(
        self,
        application: str,
        version: int,
        files: Sequence[DataFile],
        *,
        replace_by: str | None = None,
        transactions: Mapping[str, int] | None = None,
        expect: tuple[str, int | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Add files as a version of an application, once: False if it was committed before.

        With `replace_by`, a column that has the version, an earlier commit is replaced instead.
        `transactions` are recorded with it, and `expect` is one that must not have changed.
        `metadata` is shown in the history.
        """
        if (root := self.location.path) is not None and files:
            with storage_errors(self.location):
                fsync_folders(root, (file.path for file in files))
        with self._lock:
            for attempt in range(_MAX_ATTEMPTS):
                last = self.last_transaction(application)
                removed: list[DataFile] = []
                added = list(files)
                repeated = last is not None and last >= version
                if repeated and attempt and self._has(files):
                    return True  # only the answer was lost
                if expect and self._opened().transaction_version(expect[0]) != expect[1]:
                    raise PreconditionFailed(f"table {self.name}: {expect[0]} has changed")
                if repeated:
                    if replace_by is None:
                        return False
                    removed, kept = self._without(replace_by, version)
                    added += kept
                    if not removed and not added:
                        return True
                recorded = {application: max(version, version if last is None else last)}
                recorded |= transactions or {}
                try:
                    if self._try_commit(added, removed, recorded, metadata):
                        return True
                except StorageUnavailable:
                    # The commit may have happened.
                    if self.last_transaction(application) != recorded[application] or (
                        not self._has(added)
                    ):
                        raise
                    return True
                time.sleep(0.01 * attempt)
        raise StorageUnavailable(f"table {self.name}: others commit all the time")

    def _try_commit(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any] | None,
        data_change: bool = True,
    ) -> bool:
        """One attempt on the current state: False if the state has changed."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction, Transaction

        table = self._opened()
        now = round(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            *(add_action(file, now, data_change) for file in added),
            *(
                RemoveAction(file.path, data_change, now, file.bytes, dict(file.partition))
                for file in removed
            ),
        ]
        recorded = [Transaction(*each) for each in transactions.items()]
        before = table.version()
        try:
            with storage_errors(self.location):
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=list(table.metadata().partition_columns),
                    commit_properties=commit_properties(recorded, metadata),
                    post_commithook_properties=no_hooks(),
                )
        except CommitFailedError as error:
            log.debug("commit conflict", table=self.name, error=error_text(error))
            self._table = None
            return False
        except Exception:
            self._table = None
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
        found = data_files(actions)
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
            return read_by_workers(spark, self.location, found, arrow, self.name)
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
            self._refreshed().restore(target, commit_properties=commit_properties())

    def optimize(
        self,
        target: int = TARGET_FILE_BYTES,
        cluster_by: str | None = None,
        **between: tuple[Any, Any],
    ) -> OptimizeResult:
        """Merge small files into large ones, beside writers and readers.

        Files of a partition are merged with the next ones only, so rows stay in order of commits,
        which delta-rs' own optimize does not keep. `between` selects files, as in `files`.
        """
        table = LakeTable(self.location, self.name)  # commits go on meanwhile
        removed = added = 0
        for group in merge_groups(table.files(**between), target):
            writer = DataFileWriter(self.location, table.schema, table.partition_by, cluster_by)
            for file in group:
                writer.add(table.read_file(file))
            files = writer.close()
            if sum(file.rows for file in files) != sum(file.rows for file in group):
                raise AssertionError(f"table {self.name}: merged files differ from their sources")
            if table._exchange(group, files):
                removed, added = removed + len(group), added + len(files)
        return OptimizeResult(removed, added)

    def _exchange(self, group: Sequence[DataFile], files: Sequence[DataFile]) -> bool:
        """Replace files by others with the same rows, unless one was replaced meanwhile."""
        if (root := self.location.path) is not None:
            fsync_folders(root, (file.path for file in files))
        for attempt in range(_MAX_ATTEMPTS):
            current = {file.path for file in self.files()}
            if not current.issuperset(file.path for file in group):
                return False
            metadata = {"operation_name": "optimize"}
            if self._try_commit(files, group, {}, metadata, data_change=False):
                return True
            time.sleep(0.01 * attempt)
        return False  # the next time

    def vacuum(self, retention: timedelta = GRACE) -> int:
        """Delete files that left the table, or never were in it, longer ago; returns how many."""
        fresh = LakeTable(self.location, self.name)
        with fresh._changed():
            table = fresh._refreshed()
            deleted = table.vacuum(
                retention_hours=round(retention.total_seconds() / 3600),
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                commit_properties=commit_properties(),
                post_commithook_properties=no_hooks(),
            )
        return len(deleted)

    def drop(self) -> None:
        with self._lock:
            self._table = self._created = None
            self.location.delete()

    # The open table

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        with self._lock:
            if self._table is None:
                path = self.location.path
                if path is not None and not (path / LOG_FOLDER).is_dir():
                    raise NotFound(f"the lake has no table {self.name!r}")
                options = self.location.storage_options
                try:
                    with storage_errors(self.location):
                        self._table = DeltaTable(self.location.url, storage_options=options)
                except TableNotFoundError:
                    raise NotFound(f"the lake has no table {self.name!r}") from None
                except DeltaError:
                    if path is None or not set_incomplete_aside(path / LOG_FOLDER, self.name):
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
            self._sync_log(before + 1, after)
            self._maintain(before)

    def _sync_log(self, first: int, last: int) -> None:
        if (root := self.location.path) is None:
            return
        with storage_errors(self.location):
            for version in range(first, last + 1):
                with suppress(FileNotFoundError):  # expired
                    fsync_path(log_file(root, version))
            fsync_path(root / LOG_FOLDER)

    def _maintain(self, before: int) -> None:
        """Write a checkpoint, and remove expired log entries, from time to time."""
        table = self._opened()
        version = table.version()
        if before // _CHECKPOINT_COMMITS == version // _CHECKPOINT_COMMITS:
            return
        try:
            table.create_checkpoint()
            if (root := self.location.path) is not None:
                for path in (root / LOG_FOLDER).glob(f"{version:020}.checkpoint*.parquet"):
                    fsync_path(path)
                fsync_path(root / LOG_FOLDER / "_last_checkpoint")
                fsync_path(root / LOG_FOLDER)
            table.cleanup_metadata()
            # An open table keeps every entry since it was opened, and each commit reads them.
            self._table = None
        except Exception as error:  # the commit has happened; the next one tries again
            log.warning(
                "checkpoint failed", table=self.name, version=version, reason=error_text(error)
            )
