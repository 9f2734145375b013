"""Streams over AMQP 0-9-1: RabbitMQ's, and those of whoever follows its conventions.

A range is read by consuming at its first offset until its last has come. Prefetch is a must and is
large; acknowledgements are credit, given for thousands at a time; a consumer is never cancelled,
its connection is closed. Where a stream ends is asked in `looking.py`. Only a management API can
list streams, so names by a pattern need that.

The broker says no times of its own here: the column is left empty, and filled from what the
publisher wrote, if anything (`connector/columns.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from pamqp import commands

from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    ConnectionForced,
    NotFound,
    PenstockError,
)
from penstock.pipeline.amqp.address import BrokerAddress
from penstock.pipeline.amqp.connection import Connection
from penstock.pipeline.amqp.contents import OFFSET, take_offset
from penstock.pipeline.amqp.deliveries import Deliveries
from penstock.pipeline.amqp.frames import method
from penstock.pipeline.brokers.contract import MESSAGES, Ended, Offsets, Range
from penstock.pipeline.brokers.http import Management
from penstock.pipeline.brokers.looking import EMPTY_SECONDS, STILL_EMPTY_SECONDS, Look, look
from penstock.pipeline.errors import ListUnavailable

#: Messages under way: more than a round trip's worth, and no more than a broker should hold.
PREFETCH: Final = 10_000
#: A batch is handed on when it has so many rows, or bytes.
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16 << 20
#: When nothing comes for so long, it is time to ask whether there is anything to come.
STALL_SECONDS: Final = 5.0
#: How long a stream may take to start, and how often it is looked at meanwhile.
_STARTING_SECONDS: Final = 5.0
_STARTING_PAUSE: Final = 0.2
#: Offsets that are no message's where a segment begins.
_OWN_ENTRIES: Final = 1


class Replays:
    """Keeps `contract.Streams`."""

    def __init__(self, address: BrokerAddress, management: str) -> None:
        self._address = address
        self._management = management
        self._looking: Connection | None = None

    def names(self) -> set[str]:
        api = Management(self._management, self._address)
        query: dict[str, str | int] = {"columns": "name,type,arguments"}
        try:
            rows = api.get_json(f"/queues/{quote(self._address.vhost, safe='')}", query)
        except (AccessRefused, NotFound) as error:
            raise ConfigurationError(_unlisted(api, error)) from None
        except OSError as error:  # it may be starting, or have stumbled over a queue just declared
            raise ListUnavailable(_unlisted(api, error)) from None
        return {row["name"] for row in rows if row.get("type") == "stream"}

    def firsts(self, names: Collection[str]) -> Offsets:
        seen = self._look({name: Look("first", 1) for name in names})
        return {name: each.first for name, each in seen.items()}

    def ends(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        patience = {
            name: STILL_EMPTY_SECONDS if name in known and known[name] is None else EMPTY_SECONDS
            for name in names
        }
        seen = self._look({name: Look("last", patience=patience[name]) for name in names})
        return {
            name: known.get(name) if each.end is None else each.end for name, each in seen.items()
        }

    def at(self, name: str, moment_ms: int) -> int:
        moment = datetime.fromtimestamp(max(moment_ms, 0) // 1000, UTC)
        seen = self._look({name: Look(moment, 1)})
        if name not in seen:
            raise NotFound(f"{self._address}: there is no stream {name!r}")
        found = seen[name].first
        # Nothing came then or later: behind all there is.
        return (self.ends([name], {})[name] or 0) if found is None else found

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        with Connection(self._address, f"spark {wanted}") as connection:
            channel = connection.open_channel()
            prefetch = min(PREFETCH, len(wanted))
            connection.call(channel, commands.Basic.Qos(0, prefetch), commands.Basic.QosOk)
            consume = commands.Basic.Consume(
                0, wanted.stream, "spark", arguments={OFFSET: wanted.start}
            )
            connection.send(method(channel, consume))
            yield from self._follow(connection, channel, prefetch, wanted)

    def lost(self, name: str, expected: int, found: int) -> bool:
        """RabbitMQ begins a segment with an entry of its own, which takes an offset.

        So one is no loss. More may be entries of its own as well; that messages are missing is
        certain when the stream itself begins behind the place.
        """
        if found - expected <= _OWN_ENTRIES:
            return False
        first = self.firsts([name]).get(name)
        return first is None or first > expected + _OWN_ENTRIES

    def close(self) -> None:
        if self._looking is not None:
            self._looking.close()
            self._looking = None

    def _follow(
        self, connection: Connection, channel: int, prefetch: int, wanted: Range
    ) -> Iterator[pa.RecordBatch]:
        deliveries = Deliveries(channel, connection.take_rest())
        gathered = _Gathered(wanted)
        acknowledged = 0
        stall = time.monotonic() + STALL_SECONDS
        data = b""  # the first time, what came with the answers before
        while True:
            for frame in deliveries.feed(data):
                if isinstance(connection.check(frame), commands.Basic.Cancel):
                    raise ConnectionResetError(f"{self._address} has ended the reading of {wanted}")
            if deliveries:
                stall = time.monotonic() + STALL_SECONDS
                gathered.add(deliveries)
                deliveries.clear()
                # Credit for what is still wanted: nothing beyond the range is delivered.
                most = len(wanted) + gathered.early - prefetch
                tag = min(deliveries.tag, most)
                if tag - acknowledged >= (prefetch + 1) // 2 or acknowledged < tag == most:
                    acknowledged = tag
                    connection.send(method(channel, commands.Basic.Ack(tag, True)))
            if gathered.full or gathered.complete:
                yield gathered.take()
            if gathered.complete:
                return
            try:
                data = connection.receive_bytes(stall - time.monotonic())
            except TimeoutError:
                if (self.ends([wanted.stream], {})[wanted.stream] or 0) < wanted.stop:
                    yield from gathered.rest()
                    raise Ended(f"{wanted} ends early") from None
                raise

    def _look(self, wanted: Mapping[str, Look]) -> dict[str, Look]:
        """What is seen of the streams that are there, over a connection that is kept.

        A stream that was declared a moment ago may still be starting: that is waited for.
        """
        deadline = time.monotonic() + _STARTING_SECONDS
        while True:
            if self._looking is None:
                self._looking = Connection(self._address, "spark offsets")
            try:
                return look(self._looking, {name: replace(each) for name, each in wanted.items()})
            except (OSError, PenstockError) as error:
                self._looking.abandon()
                self._looking = None
                if not isinstance(error, ConnectionForced) or time.monotonic() > deadline:
                    raise
            time.sleep(_STARTING_PAUSE)


def _unlisted(api: Management, error: Exception) -> str:
    return (
        "streams: a pattern needs the list of queues, which only the broker's management API has, "
        f"and {api} does not give it ({error}); enable its management plugin and give the user the "
        "management tag, set managementUrl, or write the names out"
    )


class _Gathered:
    """Messages on their way into a batch: those of the range, whatever else is delivered."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self._texts: dict[bytes, tuple[str, str]] = {}
        self.early = 0  #: delivered, and before the range
        self.complete = False  #: the last of the range, or one behind it, has come
        self._bytes = 0
        self._offsets: list[int] = []
        self._routes: list[tuple[str, str]] = []
        self._headers: list[bytes] = []
        self._bodies: list[bytes] = []

    @property
    def full(self) -> bool:
        return len(self._offsets) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, deliveries: Deliveries) -> None:
        start, stop = self._wanted.start, self._wanted.stop
        texts, offsets, routes = self._texts, self._offsets, self._routes
        headers, bodies = self._headers, self._bodies
        for route, header, body in zip(
            deliveries.routes, deliveries.headers, deliveries.bodies, strict=False
        ):
            offset, header = take_offset(header)
            if offset < start:  # a broker may begin at the chunk that holds the start
                self.early += 1
                continue
            if offset >= stop:
                self.complete = True
                return
            text = texts.get(route)
            if text is None:
                text = texts[route] = _texts(route)
            offsets.append(offset)
            routes.append(text)
            headers.append(header)
            bodies.append(body)
            self._bytes += len(body)
        self.complete = bool(offsets) and offsets[-1] == stop - 1

    def take(self) -> pa.RecordBatch:
        exchanges = pa.array([route[0] for route in self._routes], pa.string())
        keys = pa.array([route[1] for route in self._routes], pa.string())
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self._offsets, pa.int64()),
                pa.nulls(len(self._offsets), MESSAGES.field("timestamp").type),
                exchanges.dictionary_encode(),
                keys.dictionary_encode(),
                pa.array(self._headers, pa.binary()),
                pa.array(self._bodies, pa.binary()),
            ],
            schema=MESSAGES,
        )
        self._bytes = 0
        for column in (self._offsets, self._routes, self._headers, self._bodies):
            column.clear()
        return batch

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._offsets:
            yield self.take()


def _texts(route: bytes) -> tuple[str, str]:
    middle = 1 + route[0]
    exchange, key = route[1:middle], route[middle + 1 :]
    return exchange.decode("utf-8", "replace"), key.decode("utf-8", "replace")
