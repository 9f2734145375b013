"""How a flow is getting on, in two small files that anybody may read at any time.

    progress/hives.state.json    is it running, and if not, why
    progress/hives.batch.json    the last batch: what, when, how long, how far

The engine writes the first when something changes; whoever applies batches writes the second after
each. Both are replaced whole. `status` and the metrics are made of them, so they tell what happened
even when nothing runs any more.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from penstock_spark.bronze import BronzeBatch
from penstock_spark.lake.log import write_atomically

#: The rate is an average over about so many seconds.
RATE_SECONDS: Final = 30.0


class RunState(StrEnum):
    STARTING = "starting"  #: no batch, and no look for one, has been done yet
    RUNNING = "running"
    WAITING = "waiting"  #: for something that is away; `reason` says what
    STOPPED = "stopped"  #: told to, or done
    FAILED = "failed"  #: will not be tried again; `reason` says why
    GONE = "gone"  #: it ran, and its process is no more


@dataclass(frozen=True, slots=True)
class RunStatus:
    state: RunState
    since: float  #: seconds since 1970
    pid: int
    reason: str = ""
    restarts: int = 0  #: of the query, in this process


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The last batch that was applied, and what was applied with it since the process began."""

    batch: int
    rows: int
    bronze_seconds: float
    apply_seconds: float
    at: float  #: seconds since 1970, when it was done
    newest: float | None  #: likewise, when its last message came
    ends: dict[str, int] = field(default_factory=dict)  #: the next offset of each stream
    rate: float = 0.0  #: messages a second, lately
    pid: int = 0
    total_rows: int = 0
    total_batches: int = 0

    @property
    def seconds(self) -> float:
        return self.bronze_seconds + self.apply_seconds

    @property
    def behind(self) -> float | None:
        """The age of its newest message when it was done: the lag in time while messages come."""
        return None if self.newest is None else max(0.0, self.at - self.newest)

    def next(
        self, kept: BronzeBatch, bronze: float, apply: float, now: float, pid: int
    ) -> BatchProgress:
        """This one's successor; totals begin again in another process."""
        same = self.pid == pid
        # While nothing came the rate fell: the time since the last batch counts, work or not.
        elapsed = max(now - self.at if same else 0.0, bronze + apply, 1e-3)
        weight = 1 - math.exp(-elapsed / RATE_SECONDS) if same else 1.0
        rate = (self.rate if same else 0.0) * (1 - weight) + kept.rows / elapsed * weight
        return BatchProgress(
            kept.batch,
            kept.rows,
            bronze,
            apply,
            now,
            kept.newest.timestamp() if kept.newest else None,
            dict(kept.ends),
            rate,
            pid,
            (self.total_rows if same else 0) + kept.rows,
            (self.total_batches if same else 0) + 1,
        )


_NO_BATCH: Final = BatchProgress(-1, 0, 0.0, 0.0, 0.0, None)


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """A flow's two files."""

    folder: Path
    flow: str

    def set_state(self, state: RunState, now: float, reason: str = "", restarts: int = 0) -> None:
        self._write("state", RunStatus(state, now, os.getpid(), reason, restarts))

    def record_batch(
        self, kept: BronzeBatch, bronze: float, apply: float, now: float
    ) -> BatchProgress:
        done = (self.last_batch() or _NO_BATCH).next(kept, bronze, apply, now, os.getpid())
        self._write("batch", done)
        return done

    def run_status(self) -> RunStatus | None:
        found = self._read("state")
        return None if found is None else RunStatus(**{**found, "state": RunState(found["state"])})

    def last_batch(self) -> BatchProgress | None:
        found = self._read("batch")
        return None if found is None else BatchProgress(**found)

    def _write(self, what: str, value: RunStatus | BatchProgress) -> None:
        write_atomically(self.folder / f"{self.flow}.{what}.json", json.dumps(asdict(value)))

    def _read(self, what: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(
                (self.folder / f"{self.flow}.{what}.json").read_bytes()
            )
        except FileNotFoundError:
            return None
        return found
