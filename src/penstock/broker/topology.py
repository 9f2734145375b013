"""Durable topology: which virtual hosts, exchanges, queues and bindings exist.

A journal of JSON lines, one per change, written with the logs at the end of a turn and rewritten
whole when most of it is history. A line is a value (`put`) or its end (`drop`); the last line
about a key holds. A torn last line is cut.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.broker.log.committer import Committer
from penstock.core.tables import decode_table, encode_table

Key = tuple[str, ...]

#: Rewrite the journal when it has this many lines of history.
HISTORY_LINES = 10_000


def pack_arguments(arguments: dict[str, Any]) -> str:
    """Field tables hold more types than JSON: they are kept as they travel."""
    return base64.b64encode(encode_table(arguments)).decode()


def unpack_arguments(text: str) -> dict[str, Any]:
    return decode_table(base64.b64decode(text), 0)[0]


class Topology:
    def __init__(self, path: Path, committer: Committer, report: Callable[[str], None]) -> None:
        self.path = path
        self._committer = committer
        self._records: dict[Key, dict[str, Any]] = {}
        self._pending: list[bytes] = []
        self._lines = 0
        self._load(report)
        self._rewrite()

    def all(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Every record of a kind: `vhost`, `exchange`, `queue` or `binding`."""
        return ((key, value) for key, value in list(self._records.items()) if key[0] == kind)

    def put(self, key: Key, value: dict[str, Any]) -> None:
        if self._records.get(key) != value:
            self._records[key] = value
            self._append({"put": key, "value": value})

    def drop(self, key: Key) -> None:
        if self._records.pop(key, None) is not None:
            self._append({"drop": key})

    def _append(self, line: dict[str, Any]) -> None:
        if not self._pending:
            self._committer.touch(self)
        self._pending.append(json.dumps(line).encode() + b"\n")

    # What the committer asks of whatever it writes.

    def write(self) -> None:
        if not self._pending:
            return
        data = b"".join(self._pending)
        end = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(28, "No space left on device", str(self.path))
        except OSError:
            os.ftruncate(self._fd, end)
            raise
        self._lines += len(self._pending)
        self._pending.clear()
        if self._lines > 2 * len(self._records) + HISTORY_LINES:
            os.close(self._fd)
            self._rewrite()

    def begin_sync(self) -> list[int]:
        return [os.dup(self._fd)]

    def end_sync(self, error: OSError | None) -> None:
        """The next change is written all the same."""

    def close(self) -> None:
        try:
            self.write()
        finally:
            os.close(self._fd)

    def _load(self, report: Callable[[str], None]) -> None:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            report(f"{self.path}: cut a torn line of {len(torn)} bytes")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                if "put" in record:
                    self._records[tuple(record["put"])] = record["value"]
                else:
                    self._records.pop(tuple(record["drop"]), None)
            except (ValueError, KeyError, TypeError):
                report(f"{self.path}: line {number} cannot be read, skipped")

    def _rewrite(self) -> None:
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as file:
            for key, value in self._records.items():
                file.write(json.dumps({"put": key, "value": value}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(self._records)
