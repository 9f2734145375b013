"""Files of a simulation: recorded frames, and the ground truth.

Recordings are JSON lines (`{"at": …, "topic": …, "body_hex": …}`) or Parquet. Lines that `penstock
sub --json` wrote can be read, too. The ground truth is Parquet or CSV: `truth.parquet` has counts,
`truth.occupancy.parquet` occupancy, `truth.ledger.parquet` sums by sensor and, on request,
`truth.events.parquet` each passage.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock_hives.sensors.fleet import Fleet, FrameWindow, SensorFrame

FrameRecorder = Callable[[FrameWindow], None]


@contextmanager
def open_recording(path: Path) -> Iterator[FrameRecorder]:
    """A function that writes the frames of a window."""
    if path.suffix == ".parquet":
        with open_table_file(path) as table:
            yield lambda window: table.write(window.frames)
    elif path.suffix == ".jsonl":
        with path.open("w") as file:
            yield lambda window: _write_lines(file, window)
    else:
        raise ConfigurationError(f"{path}: a recording is a .jsonl or a .parquet file")


def read_recording(path: Path) -> Iterator[SensorFrame]:
    if path.suffix == ".parquet":
        return _read_columns(path)
    return _read_lines(path)


def _write_lines(file: IO[str], window: FrameWindow) -> None:
    for at, topic, body in window:
        time = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
        line = {"at": time, "topic": topic, "body_hex": body.hex()}
        file.write(json.dumps(line) + "\n")


def _read_columns(path: Path) -> Iterator[SensorFrame]:
    for batch in pq.ParquetFile(path).iter_batches():
        times = batch["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        keys = batch["routing_key"].cast(pa.string()).to_pylist()
        for at, key, body in zip(times, keys, batch["body"].to_pylist(), strict=True):
            yield SensorFrame(at, key.replace(".", "/"), body)


def _read_lines(path: Path) -> Iterator[SensorFrame]:
    with path.open() as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield _read_line(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise PreconditionFailed(
                    f'{path}, line {number}: should be {{"at": TIME, "topic": TOPIC, "body_hex": '
                    f"HEX}}, or what `penstock sub --json` writes: {type(error).__name__} {error}"
                ) from error


def _read_line(line: Any) -> SensorFrame:
    if not isinstance(line, dict):
        raise TypeError("no JSON object")
    text = line.get("at") or line.get("timestamp")
    time = datetime.fromisoformat(text) if text else None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{text!r} is not a time with a zone")
    topic: str = line["topic"] if "topic" in line else line["address"].replace(".", "/")
    if "body_hex" in line:
        body = bytes.fromhex(line["body_hex"])
    elif "body_base64" in line:
        body = b64decode(line["body_base64"], validate=True)
    else:
        value = line["body"]
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
    return SensorFrame(round(time.timestamp() * 1000), topic, body)


class TableFile:
    """Opened by its first batch, which has the columns."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".parquet", ".csv"):
            raise ConfigurationError(f"{path}: a table is a .parquet or a .csv file")
        self._path = path
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._path.suffix == ".csv":
            batch = _plain(batch)
        if self._writer is None:
            make = csv.CSVWriter if self._path.suffix == ".csv" else pq.ParquetWriter
            self._writer = make(str(self._path), batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def open_table_file(path: Path) -> Iterator[TableFile]:
    table = TableFile(path)
    try:
        yield table
    finally:
        table.close()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """CSV has no dictionaries."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


class TruthWriter:
    def __init__(self, counts: TableFile, occupancy: TableFile, events: TableFile | None) -> None:
        self._counts = counts
        self._occupancy = occupancy
        self._events = events

    def write(self, window: FrameWindow) -> None:
        self._counts.write(window.truth.counts())
        self._occupancy.write(window.truth.occupancy())
        if self._events is not None:
            self._events.write(window.truth.events())


@contextmanager
def open_truth(path: Path, fleet: Fleet, with_events: bool = False) -> Iterator[TruthWriter]:
    """The ledger is written at the end."""
    with ExitStack() as stack:

        def beside(name: str) -> TableFile:
            return stack.enter_context(open_table_file(path.with_suffix(f".{name}{path.suffix}")))

        counts = stack.enter_context(open_table_file(path))
        yield TruthWriter(counts, beside("occupancy"), beside("events") if with_events else None)
        beside("ledger").write(fleet.ledger())
