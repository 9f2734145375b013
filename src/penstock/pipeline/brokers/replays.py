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
from secrets import token_hex
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from pamqp import commands

from penstock.client.amqp091.blocking import BlockingConnection
from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    ConnectionForced,
    NotFound,
    PenstockError,
)
from penstock.pipeline.amqp.deliveries import Deliveries
from penstock.pipeline.amqp.offsets import OFFSET
from penstock.pipeline.brokers.contract import Ended, Offsets, Range
from penstock.pipeline.brokers.gathering import Gathering
from penstock.pipeline.brokers.http import Management
from penstock.pipeline.brokers.looking import EMPTY_SECONDS, STILL_EMPTY_SECONDS, Look, look
from penstock.pipeline.errors import ListUnavailable
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.frames import write_method

#: Messages under way: more than a round trip's worth, and no more than a broker should hold.
PREFETCH: Final = 10_000
#: What is received is looked at when it is half of what is under way, or all that is wanted, or so
#: many bytes, or when nothing more has come for a moment.
BLOCK_BYTES: Final = 4 << 20
PAUSE_SECONDS: Final = 0.02
#: When nothing comes for so long, it is time to ask whether there is anything to come.
STALL_SECONDS: Final = 5.0
#: How long a stream may take to start, and how often it is looked at meanwhile.
_STARTING_SECONDS: Final = 5.0
_STARTING_PAUSE: Final = 0.2
#: Offsets that are no message's where a segment begins.
_OWN_ENTRIES: Final = 1


class Replays:
    """Keeps `contract.Streams`."""

    def __init__(self, address: Address, management: str) -> None:
        self._address = address
        self._management = management
        self._looking: BlockingConnection | None = None

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
        with BlockingConnection(self._address, f"spark {wanted}") as connection:
            channel = connection.open_channel()
            prefetch = min(PREFETCH, len(wanted))
            connection.call(channel, commands.Basic.Qos(0, prefetch), commands.Basic.QosOk)
            consumer = f"spark-{token_hex(6)}"  # not to be guessed by whoever writes bodies
            consume = commands.Basic.Consume(
                0, wanted.stream, consumer, arguments={OFFSET: wanted.start}
            )
            connection.send(write_method(channel, consume))
            yield from self._follow(connection, channel, consumer.encode(), prefetch, wanted)

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
        self,
        connection: BlockingConnection,
        channel: int,
        consumer: bytes,
        prefetch: int,
        wanted: Range,
    ) -> Iterator[pa.RecordBatch]:
        deliveries = Deliveries(channel, consumer, connection.take_rest())
        gathering = Gathering(wanted)
        acknowledged = 0
        data = b""  # the first time, what came with the answers before
        while True:
            found, others = deliveries.feed(data)
            for frame in others:
                if isinstance(connection.check(frame), commands.Basic.Cancel):
                    raise ConnectionResetError(f"{self._address} has ended the reading of {wanted}")
            for each in found:
                batch = gathering.batch(each)
                if batch is not None:
                    yield batch
                if gathering.complete:
                    return
            # Credit for what is still wanted: nothing beyond the range is delivered.
            last = len(wanted) + gathering.early
            most = last - prefetch
            tag = min(deliveries.tag, most)
            if tag - acknowledged >= (prefetch + 3) // 4 or acknowledged < tag == most:
                acknowledged = tag
                connection.send(write_method(channel, commands.Basic.Ack(tag, True)))
            try:
                enough = min(prefetch // 2, last - deliveries.tag)
                data = self._receive(connection, deliveries, enough)
            except TimeoutError:
                if (self.ends([wanted.stream], {})[wanted.stream] or 0) < wanted.stop:
                    raise Ended(f"{wanted} ends early") from None
                raise

    @staticmethod
    def _receive(connection: BlockingConnection, deliveries: Deliveries, enough: int) -> bytes:
        """So many deliveries that it is worth looking at them, or what came before a pause."""
        pieces = [connection.receive_bytes(STALL_SECONDS)]
        count, size = deliveries.count(pieces[0]), len(pieces[0])
        while count < enough and size < BLOCK_BYTES:
            try:
                pieces.append(connection.receive_bytes(PAUSE_SECONDS))
            except TimeoutError:
                break
            count += deliveries.count(pieces[-1])
            size += len(pieces[-1])
        return b"".join(pieces)

    def _look(self, wanted: Mapping[str, Look]) -> dict[str, Look]:
        """What is seen of the streams that are there, over a connection that is kept.

        A stream that was declared a moment ago may still be starting: that is waited for.
        """
        deadline = time.monotonic() + _STARTING_SECONDS
        while True:
            if self._looking is None:
                self._looking = BlockingConnection(self._address, "spark offsets")
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
