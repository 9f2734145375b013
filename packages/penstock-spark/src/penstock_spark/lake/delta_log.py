"""The log of a Delta table, in the terms of delta-rs: actions, settings of commits, its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.logs import get_logger
from penstock_spark.lake.data_file import DataFile, partition_value, statistic
from penstock_spark.lake.storage import fsync_path

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties

log = get_logger(__name__)

LOG_FOLDER: Final = "_delta_log"


def data_files(actions: pa.Table) -> list[DataFile]:
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


def merge_groups(files: Sequence[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Neighbouring files of a partition that are small, up to the target together."""
    partitions: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        partitions.setdefault(tuple(file.partition.values()), []).append(file)
    for mine in partitions.values():
        group: list[DataFile] = []
        size = 0
        for file in mine:
            if size + file.bytes > target or file.bytes >= target // 2:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            if file.bytes < target // 2:
                group.append(file)
                size += file.bytes
        if len(group) > 1:
            yield group


def add_action(file: DataFile, now: int, data_change: bool) -> AddAction:
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": dict(file.lower),
        "maxValues": dict(file.upper),
        "nullCount": dict(file.nulls),
    }
    partition = dict(file.partition)
    return AddAction(file.path, file.bytes, partition, now, data_change, json.dumps(stats))


def commit_properties(
    transactions: list[Any] | None = None, metadata: Mapping[str, Any] | None = None
) -> CommitProperties:
    from deltalake.transaction import CommitProperties

    return CommitProperties(
        custom_metadata=dict(metadata) if metadata else None,
        # Each attempt begins with a look at the current state.
        max_commit_retries=0 if transactions is not None else None,
        app_transactions=transactions,
    )


def no_hooks() -> PostCommitHookProperties:
    """Checkpoints are written by `_maintain`, which syncs them."""
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def is_same_type(known: pa.Field, given: pa.Field) -> bool:
    if known.type == given.type:
        return True
    return bool(
        pa.types.is_map(known.type)
        and pa.types.is_map(given.type)
        and (known.type.key_type, known.type.item_type)
        == (given.type.key_type, given.type.item_type)
    )


def extends(known: pa.DataType, given: pa.DataType) -> bool:
    """Whether a type is the known one, or has more fields in its structs."""
    if known == given:
        return True
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        names = {each.name for each in given}
        return all(
            each.name in names and extends(each.type, given.field(each.name).type) for each in known
        )
    if pa.types.is_list(known) and pa.types.is_list(given):
        return extends(known.value_type, given.value_type)
    if pa.types.is_map(known) and pa.types.is_map(given):
        return known.key_type == given.key_type and extends(known.item_type, given.item_type)
    return False


def log_file(root: Path, version: int) -> Path:
    return root / LOG_FOLDER / f"{version:020}.json"


def set_incomplete_aside(folder: Path, table: str) -> bool:
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
