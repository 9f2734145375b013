"""Frames in a file: JSON lines to read and to edit, Parquet for many.

A line is `{"at": …, "topic": …, "body_hex": …}`. Lines that `penstock sub --json` wrote are read as
well, so that what came over a real wire can be sent again.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock.hives.sensors.fleet import Frame, Window
from penstock.hives.sensors.tables import Table, open_table


class Recorder(Protocol):
    def write(self, window: Window) -> None: ...


@contextmanager
def open_recording(path: Path) -> Iterator[Recorder]:
    if path.suffix == ".parquet":
        with open_table(path) as table:
            yield _Columns(table)
    elif path.suffix == ".jsonl":
        with path.open("w") as file:
            yield _Lines(file)
    else:
        raise ConfigurationError(f"{path}: a recording is a .jsonl or a .parquet file")


def read_recording(path: Path) -> Iterator[Frame]:
    if path.suffix == ".parquet":
        return _read_columns(path)
    return _read_lines(path)


class _Columns:
    def __init__(self, table: Table) -> None:
        self._table = table

    def write(self, window: Window) -> None:
        self._table.write(window.frames)


class _Lines:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, window: Window) -> None:
        for at, topic, body in window:
            time = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
            line = {"at": time, "topic": topic, "body_hex": body.hex()}
            self._file.write(json.dumps(line) + "\n")


def _read_columns(path: Path) -> Iterator[Frame]:
    for batch in pq.ParquetFile(path).iter_batches():
        times = batch["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        keys = batch["routing_key"].cast(pa.string()).to_pylist()
        for at, key, body in zip(times, keys, batch["body"].to_pylist(), strict=True):
            yield Frame(at, key.replace(".", "/"), body)


def _read_lines(path: Path) -> Iterator[Frame]:
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


def _read_line(line: Any) -> Frame:
    if not isinstance(line, dict):
        raise TypeError("no JSON object")
    told = line.get("at") or line.get("timestamp")
    time = datetime.fromisoformat(told) if told else None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{told!r} is no moment")
    topic: str = line["topic"] if "topic" in line else line["address"].replace(".", "/")
    if "body_hex" in line:
        body = bytes.fromhex(line["body_hex"])
    elif "body_base64" in line:
        body = b64decode(line["body_base64"], validate=True)
    else:
        said = line["body"]
        body = (said if isinstance(said, str) else json.dumps(said)).encode()
    return Frame(round(time.timestamp() * 1000), topic, body)
