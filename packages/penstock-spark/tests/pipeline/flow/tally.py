"""A small flow: how often each routing key came. Silver in the lake, gold in a JSON file.

It keeps the contract as a database would: a batch's counts and its mark are one rename. Told to in
the environment, it dies at a point of a batch (`TALLY_DIE=silver:3`), or makes each batch fail.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.functions import count, first, lit

from penstock_spark.flow import FlowBatch, FlowContext, PeriodicTask
from penstock_spark.lake.storage import write_atomically
from penstock_spark.stream_declaration import StreamDeclaration

SILVER = "silver.counts"


@dataclass(frozen=True)
class Tally:
    folder: Path
    streams: str
    name: str = "tally"
    key_words: int | None = None
    sources: Sequence[StreamDeclaration] = ()
    periodic_tasks: Sequence[PeriodicTask] = ()
    adoption: Exception | None = None  #: why it cannot be

    def apply(self, batch: FlowBatch) -> None:
        _die("bronze", batch)
        counted = (
            batch.messages.groupBy("routing_key", "day")
            .agg(count("*").alias("count"), first("stream").alias("stream"))
            .withColumn("batch", lit(batch.id))
        )
        batch.lake.write(SILVER, batch.id, counted)
        _die("silver", batch)
        path = self._gold(batch.generation if batch.is_rebuild else None)
        gold = _read(path)
        if batch.id in gold["marks"]:
            return
        counts = Counter(gold["counts"])
        silver = batch.lake.read(batch.spark, SILVER).filter(f"batch = {batch.id}")
        for row in silver.collect():
            counts[row.routing_key] += row["count"]
        gold |= {"marks": [*gold["marks"], batch.id], "counts": dict(counts)}
        write_atomically(path, json.dumps(gold))
        _die("gold", batch)

    def begin_rebuild(self, generation: int, since: int) -> int:
        self._gold(generation).unlink(missing_ok=True)
        return 0

    def check_adoption(self) -> None:
        if self.adoption is not None:
            raise self.adoption

    def adopt(self, generation: int) -> None:
        aside = self._gold(generation)
        if aside.exists():
            _die_at(f"adopt:{generation}")
            aside.replace(self._gold(None))
            _die_at(f"adopted:{generation}")

    def discard(self, generation: int) -> None:
        self._gold(generation).unlink(missing_ok=True)

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = _read(self._gold(None))["counts"]
        return counts

    def marks(self) -> list[int]:
        marks: list[int] = _read(self._gold(None))["marks"]
        return marks

    def _gold(self, generation: int | None) -> Path:
        return self.folder / ("gold.json" if generation is None else f"gold-{generation}.json")


@contextmanager
def open_tally(surroundings: FlowContext) -> Iterator[Tally]:
    yield Tally(surroundings.data, os.environ["TALLY_STREAMS"])


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"marks": [], "counts": {}}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _die(point: str, batch: FlowBatch) -> None:
    if not batch.is_rebuild:
        _die_at(f"{point}:{batch.id}")


def _die_at(point: str) -> None:
    if os.environ.get("TALLY_DIE") == point:
        os.killpg(0, signal.SIGKILL)
