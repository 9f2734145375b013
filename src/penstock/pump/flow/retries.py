"""What could not be done yet, kept on disk until it can.

A letter that failed is written here before it is acknowledged, and tried again with longer and
longer pauses until it is done or too old. Restarts change nothing about it.
"""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.pump.flow.letter import Letter, from_json, to_json

_SCHEMA: Final = """
create table if not exists waiting (
    id integer primary key,
    born real not null,
    due real not null,
    attempts integer not null,
    letter text not null
);
create index if not exists waiting_due on waiting (due);
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    id: int
    letter: Letter
    born: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double, from the first to the longest; and an age at which it is given up."""

    first: float = 1.0
    longest: float = 600.0
    lifetime: float = 2 * 86400.0

    def pause(self, attempts: int) -> float:
        return min(self.longest, self.first * 2.0 ** min(attempts, 32))


class Retries:
    """Blocking, and safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(_SCHEMA)

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("select count(*) from waiting").fetchone()[0])

    def add(self, letter: Letter, now: float, due: float) -> None:
        with self._lock:
            self._db.execute(
                "insert into waiting (born, due, attempts, letter) values (?, ?, 1, ?)",
                (now, due, to_json(letter)),
            )

    def due(self, now: float, limit: int) -> list[Waiting]:
        with self._lock:
            rows = self._db.execute(
                "select id, letter, born, attempts from waiting"
                " where due <= ? order by due limit ?",
                (now, limit),
            ).fetchall()
        return [Waiting(row[0], from_json(row[1]), row[2], row[3]) for row in rows]

    def next_due(self) -> float | None:
        with self._lock:
            found = self._db.execute("select min(due) from waiting").fetchone()[0]
        return None if found is None else float(found)

    def postpone(self, waiting: Waiting, due: float) -> None:
        with self._lock:
            self._db.execute(
                "update waiting set due = ?, attempts = attempts + 1 where id = ?",
                (due, waiting.id),
            )

    def done(self, waiting: Waiting) -> None:
        with self._lock:
            self._db.execute("delete from waiting where id = ?", (waiting.id,))

    def close(self) -> None:
        with self._lock:
            self._db.close()
