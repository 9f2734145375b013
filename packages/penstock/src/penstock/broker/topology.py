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
from typing import Any, Final

from penstock.broker.log.committer import Committer
from penstock.core.field_table import decode_table, encode_table
from penstock.core.logs import get_logger

TopologyKey = tuple[str, ...]

#: Rewrite the journal when it has this many lines of history.
COMPACT_LINES = 10_000

_CREATE: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC

_log = get_logger("penstock.topology")


def pack_arguments(arguments: dict[str, Any]) -> str:
    """Field tables hold more types than JSON: they are kept as they travel."""
    return base64.b64encode(encode_table(arguments)).decode()


def unpack_arguments(text: str) -> dict[str, Any]:
    return decode_table(base64.b64decode(text), 0)[0]


class Topology:
    def __init__(self, path: Path, committer: Committer, report: Callable[[str], None]) -> None:
        self.path = path
        self._committer = committer
        self._records: dict[TopologyKey, dict[str, Any]] = {}
        self._pending: list[bytes] = []
        self._fd = -1
        self._lines = 0
        self._compact_at = 0
        self._new_name = False  # the directory must be synced
        self._load(report)
        self._compact()
        committer.touch(self)

    def all(self, kind: str) -> Iterator[tuple[TopologyKey, dict[str, Any]]]:
        """Every record of a kind: `vhost`, `exchange`, `queue` or `binding`."""
        return ((key, value) for key, value in list(self._records.items()) if key[0] == kind)

    def get(self, key: TopologyKey) -> dict[str, Any] | None:
        return self._records.get(key)

    def put(self, key: TopologyKey, value: dict[str, Any]) -> None:
        if self._records.get(key) != value:
            self._records[key] = value
            self._append({"put": key, "value": value})

    def drop(self, key: TopologyKey) -> None:
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
        if self._lines > self._compact_at:
            try:
                self._compact()
            except OSError as error:  # the journal as it is holds everything
                self._compact_at = self._lines + COMPACT_LINES
                _log.warning("journal not compacted", file=str(self.path), error=str(error))

    def begin_sync(self) -> list[int]:
        descriptors = [os.dup(self._fd)]
        if self._new_name:
            try:
                descriptors.append(os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY))
            except OSError:
                os.close(descriptors[0])
                raise
        self._new_name = False
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        """The next change is written all the same."""
        if error is not None:
            self._new_name = True

    def close(self) -> None:
        try:
            if self._pending:  # since the committer's last cycle
                self.write()
                for descriptor in self.begin_sync():
                    self._committer.adopt(descriptor)
        finally:
            os.close(self._fd)
            self._fd = -1

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

    def _compact(self) -> None:
        """Replace the journal by one without history. When that fails, the old one stays in use."""
        fresh = self.path.with_suffix(".new")
        fd = os.open(fresh, _CREATE, 0o600)
        try:
            with os.fdopen(fd, "wb", closefd=False) as file:
                for key, value in self._records.items():
                    file.write(json.dumps({"put": key, "value": value}).encode() + b"\n")
            os.fsync(fd)
            fresh.replace(self.path)
        except BaseException:
            os.close(fd)
            raise
        former, self._fd = self._fd, fd
        if former >= 0:
            os.close(former)
        self._new_name = True
        self._lines = len(self._records)
        self._compact_at = 2 * self._lines + COMPACT_LINES
