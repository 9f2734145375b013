"""Streams in memory, for what is the same whoever keeps them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from penstock.core.basic_properties import BasicProperties, encode_header
from penstock_spark.landing.engines import LocalEngine
from penstock_spark.landing.lander import TableLander
from penstock_spark.landing.settings import landing_settings
from penstock_spark.landing.source import StreamSource
from penstock_spark.streams.backend import RECORD_SCHEMA, Offsets, StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint


@dataclass(frozen=True)
class Sent:
    body: bytes
    key: str = "key"
    headers: Mapping[str, Any] = field(default_factory=dict)
    timestamp_ms: int | None = 1_767_225_600_000  # 2026-01-01


@dataclass
class MemoryStreams:
    """Implements `StreamBackend`, and opens itself as an endpoint does."""

    streams: dict[str, list[Sent]] = field(default_factory=dict)
    batch: int = 7
    first: int = 0  #: what retention has left

    def publish(self, stream: str, *bodies: bytes | Sent) -> None:
        sent = [each if isinstance(each, Sent) else Sent(each) for each in bodies]
        self.streams.setdefault(stream, []).extend(sent)

    def open(self) -> MemoryStreams:
        return self

    def close(self) -> None: ...

    def names(self) -> set[str]:
        return set(self.streams)

    def first_offsets(self, names: Collection[str]) -> Offsets:
        return {name: self.first for name in names if name in self.streams}

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        return {name: len(self.streams[name]) for name in names if name in self.streams}

    def offset_at(self, name: str, moment_ms: int) -> int:
        times = [each.timestamp_ms or 0 for each in self.streams[name]]
        return next((row for row, time in enumerate(times) if time >= moment_ms), len(times))

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        sent = self.streams[wanted.stream]
        for start in range(max(wanted.start, self.first), wanted.stop, self.batch):
            stop = min(start + self.batch, wanted.stop)
            yield _batch(start, sent[start:stop])

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        return found > expected


def _batch(start: int, sent: Sequence[Sent]) -> pa.RecordBatch:
    headers = [
        encode_header(BasicProperties(headers=dict(each.headers) or None), len(each.body))
        for each in sent
    ]
    columns = [
        pa.array(range(start, start + len(sent)), pa.int64()),
        pa.array([each.timestamp_ms for each in sent], RECORD_SCHEMA.field("timestamp").type),
        pa.array([""] * len(sent)).dictionary_encode(),
        pa.array([each.key for each in sent]).dictionary_encode(),
        pa.array(headers, pa.binary()),
        pa.array([each.body for each in sent], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def lander(
    streams: MemoryStreams, to: Path | str, max_batch: int = 100, **options: Any
) -> TableLander:
    """A lander as a new process would open it."""
    settings = landing_settings({"to": str(to), "stream": "orders", **options}, "test")
    source = StreamSource.of("amqp://localhost/%2F", settings)
    source._endpoint = cast(StreamEndpoint, streams)
    return TableLander(
        settings, source, lambda source: LocalEngine(source.endpoint), max_batch=max_batch
    )


def land_all(opened: TableLander) -> TableLander:
    while opened.land_batch():
        pass
    return opened


def rows(opened: TableLander, *columns: str) -> list[Any]:
    """The rows in order of offsets, by another reader than ours."""
    return _read(opened.settings.to, columns)


def dead(opened: TableLander, *columns: str) -> list[Any]:
    if not opened.dead_letters.exists():
        return []
    return _read(str(opened.dead_letters.location), columns)


def _read(url: str, columns: Sequence[str]) -> list[Any]:
    import polars as pl

    frame = pl.read_delta(url).sort("_stream", "_offset")
    if len(columns) == 1:
        return list(frame[columns[0]].to_list())
    return list(frame.select(columns).rows() if columns else frame.to_dicts())
