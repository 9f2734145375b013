"""A SQLite database of a component: WAL mode, any thread, one transaction at a time. Blocking."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SqliteStore:
    def __init__(self, path: Path | None, schema: str, *, sync_commits: bool = False) -> None:
        """Without a path the database is in memory. With `sync_commits` a commit survives a power
        failure; otherwise only a crash of the process."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            path or ":memory:", check_same_thread=False, isolation_level=None
        )
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {'full' if sync_commits else 'normal'}")
        self._connection.executescript(schema)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("begin")
            with self._connection:  # commits, or rolls back on an error
                yield self._connection

    def close(self) -> None:
        with self._lock:
            self._connection.close()
