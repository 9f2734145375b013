"""Durable topology: virtual hosts, exchanges, queues, bindings.

A journal of JSON lines, one per change, written with the logs at the end of a write batch and
compacted when most of it is history. A line sets a value (`put`) or removes it (`drop`); the last
line of a key counts. A torn last line is cut.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from penstock.broker.log.committer import Committer
from penstock.broker.log.compacted_file import CompactedFile
from penstock.core.field_table import decode_table, encode_table

TopologyKey = tuple[str, ...]

#: A smaller journal is compacted at the next start only; a larger one when half of it is history.
COMPACT_BYTES: Final = 64 << 10


def pack_arguments(arguments: dict[str, Any]) -> str:
    """Field tables have more types than JSON, so they are stored as encoded."""
    return base64.b64encode(encode_table(arguments)).decode()


def unpack_arguments(text: str) -> dict[str, Any]:
    return decode_table(base64.b64decode(text), 0)[0]


class Topology:
    def __init__(self, path: Path, committer: Committer, report: Callable[[str], None]) -> None:
        self.path = path
        self._records: defaultdict[str, dict[TopologyKey, dict[str, Any]]] = defaultdict(dict)
        self._pending: list[bytes] = []
        #: In a cluster: called before a change is written.
        self.on_change: Callable[[], None] | None = None
        self.journal = CompactedFile(
            path,
            committer,
            pending=lambda: b"".join(self._pending),
            written=self._pending.clear,
            snapshot=self._snapshot,
            min_bytes=COMPACT_BYTES,
            lazy=False,
        )
        self._load(report)
        self.journal.compact()
        self.journal.touch()

    def all(self, kind: str) -> Iterator[tuple[TopologyKey, dict[str, Any]]]:
        """Every record of a kind: `vhost`, `exchange`, `queue`, `binding`, …"""
        return iter(list(self._records[kind].items()))

    def get(self, key: TopologyKey) -> dict[str, Any] | None:
        return self._records[key[0]].get(key)

    def put(self, key: TopologyKey, value: dict[str, Any]) -> None:
        records = self._records[key[0]]
        if records.get(key) != value:
            records[key] = value
            self._append({"put": key, "value": value})

    def drop(self, key: TopologyKey) -> None:
        if self._records[key[0]].pop(key, None) is not None:
            self._append({"drop": key})

    def close(self) -> None:
        self.journal.close()

    def _append(self, line: dict[str, Any]) -> None:
        if not self._pending:
            self.journal.touch()
        if self.on_change is not None:
            self.on_change()
        self._pending.append(_encode_line(line))

    def _snapshot(self) -> bytes:
        return b"".join(
            _encode_line({"put": key, "value": value})
            for records in self._records.values()
            for key, value in records.items()
        )

    def _load(self, report: Callable[[str], None]) -> None:
        data = self.journal.read()
        end = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:end].splitlines(), 1):
            try:
                record = json.loads(line)
                if "put" in record:
                    self._records[record["put"][0]][tuple(record["put"])] = record["value"]
                else:
                    self._records[record["drop"][0]].pop(tuple(record["drop"]), None)
            except (ValueError, LookupError, TypeError):
                report(f"{self.path}: line {number} is invalid, skipped")
        self.journal.resume(end, report)


def _encode_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"
