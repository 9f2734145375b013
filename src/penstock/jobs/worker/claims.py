"""Which worker is at which attempt of a job, as locks of the database that end with their session.

A worker that is killed loses its session, and with it all its claims: nothing has to expire. One
that loses the database goes on without claims. Blocking; those on a loop call it in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import psycopg

_CONNECT_SECONDS: Final = 10


def claim_key(identity: str, run: int, attempt: int) -> int:
    text = f"penstock job\0{identity}\0{run}\0{attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


class Claims:
    """One session of its own; raises `psycopg.Error` where the database is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._lock = threading.Lock()

    def claim(self, keys: Sequence[int]) -> set[int]:
        """Those that are ours now; the others are another worker's. Each is claimed once."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=_CONNECT_SECONDS,
                    application_name="penstock job worker",
                )
            rows = self._connection.execute(
                "SELECT key FROM unnest(%s::bigint[]) AS asked (key) "
                "WHERE pg_try_advisory_lock(key)",
                (list(keys),),
            ).fetchall()
        return {key for (key,) in rows}

    def release(self, keys: Iterable[int]) -> None:
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute(
                    "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)",
                    (list(keys),),
                )

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
