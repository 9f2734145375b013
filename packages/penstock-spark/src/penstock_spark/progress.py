"""The progress of a flow, in small files that are replaced atomically.

    progress/hives.state.json    whether it runs, and if not, why
    progress/hives.batch.json    the last batch: size, time, duration, offsets
    progress/hives.damage.json   files of bronze that could not be read

The runner writes the first when the state changes, the batch processor the second after each batch.
`penstock pipeline status` and the metrics read them, also when nothing runs. Space for them is
reserved, so that the state can be recorded when the disk is full.
"""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock_spark.bronze import MESSAGES_TABLE, BronzeBatch
from penstock_spark.lake import DataFile
from penstock_spark.lake.storage import write_atomically

log = get_logger(__name__)

#: On a full disk, the space for the state.
_RESERVE_BYTES: Final = 65_536
#: The rate is an average over about this time.
RATE_SECONDS: Final = 30.0


class RunState(StrEnum):
    STARTING = "starting"  #: the streams are not reached yet
    RUNNING = "running"
    WAITING = "waiting"  #: for an unavailable service; `reason` names it
    STOPPED = "stopped"  #: on request, or complete
    FAILED = "failed"  #: no more retries; `reason` tells why
    GONE = "gone"  #: its process has ended without a final state


@dataclass(frozen=True, slots=True)
class RunStatus:
    state: RunState
    since: float  #: seconds since 1970
    pid: int
    reason: str = ""
    restarts: int = 0  #: of the query, in this process


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The last applied batch, and totals of the process."""

    batch: int
    rows: int
    bronze_seconds: float
    apply_seconds: float
    at: float  #: seconds since 1970, when it was complete
    newest: float | None  #: seconds since 1970, of its newest message
    ends: dict[str, int] = field(default_factory=dict)  #: the next offset of each stream
    rate: float = 0.0  #: messages per second, averaged
    pid: int = 0
    total_rows: int = 0
    total_batches: int = 0

    @property
    def seconds(self) -> float:
        return self.bronze_seconds + self.apply_seconds

    @property
    def behind(self) -> float | None:
        """The age of its newest message when it was complete: the lag in time."""
        return None if self.newest is None else max(0.0, self.at - self.newest)

    def next(
        self, batch: BronzeBatch, bronze: float, apply: float, now: float, pid: int
    ) -> BatchProgress:
        """The next one; totals begin again in another process."""
        same = self.pid == pid
        # The time since the last batch counts, also without messages.
        elapsed = max(now - self.at if same else 0.0, bronze + apply, 1e-3)
        weight = 1 - math.exp(-elapsed / RATE_SECONDS) if same else 1.0
        rate = (self.rate if same else 0.0) * (1 - weight) + batch.rows / elapsed * weight
        return BatchProgress(
            batch.batch,
            batch.rows,
            bronze,
            apply,
            now,
            batch.newest.timestamp() if batch.newest else None,
            {**self.ends, **batch.ends},
            rate,
            pid,
            (self.total_rows if same else 0) + batch.rows,
            (self.total_batches if same else 0) + 1,
        )


_NO_BATCH: Final = BatchProgress(-1, 0, 0.0, 0.0, 0.0, None)


@dataclass(frozen=True, slots=True)
class FlowProgress:
    folder: Path
    flow: str

    def set_state(self, state: RunState, now: float, reason: str = "", restarts: int = 0) -> None:
        self._write("state", asdict(RunStatus(state, now, os.getpid(), reason, restarts)))

    def record_batch(
        self, batch: BronzeBatch, bronze: float, apply: float, now: float
    ) -> BatchProgress:
        done = (self.last_batch() or _NO_BATCH).next(batch, bronze, apply, now, os.getpid())
        self._write("batch", asdict(done))
        return done

    def report_damage(self, file: DataFile, reason: str) -> None:
        """Record a file of bronze that cannot be read, and whose messages are missing."""
        facts: dict[str, Any] = {
            "table": MESSAGES_TABLE,
            "file": file.path,
            "batches": [file.lower.get("batch"), file.upper.get("batch")],
            "rows": file.rows,
            "reason": reason,
        }
        log.error("bronze file unreadable", flow=self.flow, **facts)
        others = [each for each in self.damaged_files() if each["file"] != file.path]
        self._write("damage", [*others, facts])

    def damaged_files(self) -> list[dict[str, Any]]:
        return self._read("damage") or []

    def clear_damage(self) -> None:
        if self.damaged_files():
            self._write("damage", [])

    def run_status(self) -> RunStatus | None:
        found = self._read("state")
        return None if found is None else RunStatus(**{**found, "state": RunState(found["state"])})

    def last_batch(self) -> BatchProgress | None:
        found = self._read("batch")
        return None if found is None else BatchProgress(**found)

    def _write(self, what: str, value: Any) -> None:
        path = self.folder / f"{self.flow}.{what}.json"
        reserve = self.folder / f"{self.flow}.reserve"
        try:
            if not reserve.exists():
                write_atomically(reserve, " " * _RESERVE_BYTES)
            write_atomically(path, json.dumps(value))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # That the disk is full can still be told.
            reserve.unlink(missing_ok=True)
            write_atomically(path, json.dumps(value))

    def _read(self, what: str) -> Any | None:
        try:
            return json.loads((self.folder / f"{self.flow}.{what}.json").read_bytes())
        except FileNotFoundError:
            return None
