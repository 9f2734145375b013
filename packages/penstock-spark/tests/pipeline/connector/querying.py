"""A query without Spark: it asks a reader what Spark asks, in the same order, and notes the same.

Spark writes a batch's end down before it reads the batch, and that it is done afterwards; a query
that is started again runs what was written down and not done once more. What goes from driver to
worker is pickled, what goes into the checkpoint is JSON.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

from penstock_spark.connector.options import read_options
from penstock_spark.connector.source import SPARK_SCHEMA, select_columns
from penstock_spark.connector.stream_reader import StreamReader

Rows = list[tuple[str, int]]  #: streams and offsets


@dataclass
class Checkpoint:
    ends: list[str] = field(default_factory=list)  #: of every batch that was planned
    done: int = 0  #: how many of them were

    def forget_the_last(self) -> None:
        """As if the query had been killed before it could note that the batch is done."""
        self.done -= 1


class Query:
    def __init__(self, url: str, streams: str, checkpoint: Checkpoint, **options: Any) -> None:
        given = {"url": url, "streams": streams, "retrySeconds": "30"}
        given |= {name: str(value) for name, value in options.items()}
        self.reader = StreamReader(
            read_options(given, streaming=True), select_columns(SPARK_SCHEMA)
        )
        self._checkpoint = checkpoint

    def batch(self) -> Rows | None:
        """The rows of the next batch; None when there is nothing to be done."""
        noted = self._checkpoint
        if noted.done == len(noted.ends) and not self._plan():
            return None
        start, end = self._start(), json.loads(noted.ends[noted.done])
        parts = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        rows = [
            (row["stream"], row["offset"])
            for part in parts
            for batch in self.reader.read(part)
            for row in batch.select(["stream", "offset"]).to_pylist()
        ]
        self.reader.commit(end)
        noted.done += 1
        return rows

    def run(self) -> list[Rows]:
        """The batches there are now, as with `availableNow`."""
        self.reader.prepareForTriggerAvailableNow()
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
        self.reader.stop()
        return found

    def _plan(self) -> bool:
        start = self._start()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if self._checkpoint.ends and end == start:
            return False
        self._checkpoint.ends.append(json.dumps(end))
        return True

    def _start(self) -> dict[str, Any]:
        """Where the batch at hand begins: asked for until a first one is done."""
        done = self._checkpoint.done
        if not done:
            return self.reader.initialOffset()
        end: dict[str, Any] = json.loads(self._checkpoint.ends[done - 1])
        return end
