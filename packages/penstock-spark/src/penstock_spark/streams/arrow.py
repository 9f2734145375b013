"""Reads streams of a Penstock broker: ranges as Arrow record batches over HTTP.

The broker sends chunks of its log as they are on disk, and the batches point into the received
bytes: no single message is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from http.client import HTTPResponse
from typing import IO, Any, Final, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from penstock.client.management import ManagementClient
from penstock.core.errors import NotFound
from penstock_spark.streams.backend import Offsets, StreamEnded, StreamRange

#: For more streams, the whole list is fetched.
_MAX_SINGLE_REQUESTS: Final = 8
_COLUMNS: Final = "name,first_offset,committed_offset"
#: Reads of this size get a buffer of their own.
_BUFFER_BYTES: Final = 65_536


class ArrowStreamBackend:
    """Implements `StreamBackend`."""

    def __init__(self, management: ManagementClient, vhost: str) -> None:
        self._management = management
        self._vhost = vhost

    def names(self) -> set[str]:
        return {row["name"] for row in self._list()}

    def first_offsets(self, names: Collection[str]) -> Offsets:
        return {name: row["first_offset"] for name, row in self._describe(names).items()}

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        return {name: row["committed_offset"] for name, row in self._describe(names).items()}

    def offset_at(self, name: str, moment_ms: int) -> int:
        query: dict[str, str | int] = {"vhost": self._vhost, "timestamp": max(moment_ms, 0)}
        with self._management.request(_path(name), query, method="HEAD") as answer:
            self._management.check(answer)
            return int(answer.headers["x-first-offset"])

    def limit_bytes(self, wanted: StreamRange, most: int) -> int:
        query: dict[str, str | int] = {
            "vhost": self._vhost,
            "from": wanted.start,
            "to": wanted.stop,
            "max_bytes": most,
        }
        with self._management.request(_path(wanted.stream), query, method="HEAD") as answer:
            # Without the beginning, or with an end that is gone, the reader tells what is lost.
            if answer.status in (410, 416):
                return wanted.stop
            self._management.check(answer)
            return int(answer.headers["x-next-offset"])

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        start = wanted.start
        while start < wanted.stop:
            query: dict[str, str | int] = {"vhost": self._vhost, "from": start, "to": wanted.stop}
            with self._management.request(_path(wanted.stream), query) as answer:
                if answer.status == 410:  # retention has removed the beginning
                    start = int(self._management.error_body(answer)["first_offset"])
                    continue
                if answer.status == 416:
                    raise StreamEnded(f"{wanted} is beyond the end")
                self._management.check(answer)
                yield from _batches(answer)
                if (end := int(answer.headers["x-next-offset"])) < wanted.stop:
                    raise StreamEnded(f"{wanted} ends at {end}")
                return

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        """Every offset belongs to a message."""
        return found > expected

    def close(self) -> None:
        """Nothing to do: every request has its own connection."""

    def _describe(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        if len(names) > _MAX_SINGLE_REQUESTS:
            return {row["name"]: row for row in self._list() if row["name"] in names}
        found = {}
        for name in names:
            try:
                found[name] = self._management.get_json(
                    _path(name), {"vhost": self._vhost, "columns": _COLUMNS}
                )
            except NotFound:
                continue
        return found

    def _list(self) -> list[dict[str, Any]]:
        query: dict[str, str | int] = {"vhost": self._vhost, "columns": _COLUMNS}
        return cast(list[dict[str, Any]], self._management.get_json("", query))


def _path(name: str) -> str:
    return f"/{quote(name, safe='')}"


def _batches(answer: HTTPResponse) -> Iterator[pa.RecordBatch]:
    """The batches of an answer; a truncated answer is a connection error."""
    try:
        with pa.ipc.open_stream(cast(IO[bytes], _AnswerFile(answer))) as stream:
            yield from stream
            # Arrow's end marker precedes HTTP's: detect an answer truncated after a batch.
            answer.read()
    except pa.ArrowInvalid as error:
        raise ConnectionResetError(f"truncated answer: {error}") from None


class _AnswerFile:
    """The body of an answer, read into buffers of the requested size: `HTTPResponse.read` would
    join them from the pieces that the broker sent."""

    closed = False

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer

    def read(self, size: int = -1) -> bytes | memoryview:
        if size < _BUFFER_BYTES:
            return self._answer.read(size)
        space = np.empty(size, np.uint8).data
        filled = 0
        while filled < size and (count := self._answer.readinto(space[filled:])):
            filled += count
        return space[:filled]

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """The answer is closed by its owner."""
