"""Streams over AMQP 0-9-1: RabbitMQ's, and those of whoever follows its conventions.

A range is read by consuming at its first offset until its last has come. Prefetch is a must and is
large; acknowledgements are credit, given for thousands at a time; a consumer is never cancelled,
its connection is closed. Where a stream ends is asked in `probe_streams`. Only a management API can
list streams, so names by a pattern need that.

The broker says no times of its own here: the column is left empty, and filled from what the
publisher wrote, if anything (`connector/columns.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    ConnectionForced,
    NotFound,
    PenstockError,
    PreconditionFailed,
    WireSyntaxError,
)
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.errors import error_from_close
from penstock.wire.amqp091.frames import (
    FRAME_HEADER,
    FRAME_METHOD,
    AmqpFrame,
    encode_basic_ack,
)
from penstock.wire.amqp091.methods import (
    BASIC_CANCEL,
    BASIC_CONSUME,
    BASIC_QOS,
    BASIC_QOS_OK,
    CHANNEL_CLOSE,
    MethodArguments,
    decode_method,
    encode_method_frame,
)
from penstock_spark.errors import StreamListUnavailable
from penstock_spark.streams.backend import Offsets, StreamEnded, StreamRange
from penstock_spark.streams.deliveries import DeliveryBatchBuilder, DeliveryParser
from penstock_spark.streams.management import StreamManagementClient
from penstock_spark.streams.offsets import OFFSET_HEADER, pop_offset

#: Messages under way: more than a round trip's worth, and no more than a broker should hold.
PREFETCH: Final = 10_000
#: What is received is looked at when it is half of what is under way, or all that is wanted, or so
#: many bytes, or when nothing more has come for a moment.
BLOCK_BYTES: Final = 4 << 20
PAUSE_SECONDS: Final = 0.02
#: When nothing comes for so long, it is time to ask whether there is anything to come.
STALL_SECONDS: Final = 5.0
#: How long a stream may take to start, and how often it is looked at meanwhile.
_START_TIMEOUT_SECONDS: Final = 5.0
_START_RETRY_SECONDS: Final = 0.2
#: Offsets that are no message's where a segment begins.
_SEGMENT_ENTRIES: Final = 1


class AmqpStreamBackend:
    """Implements `StreamBackend`."""

    def __init__(self, address: AmqpAddress, management: str) -> None:
        self._address = address
        self._management = management
        self._looking: BlockingConnection | None = None

    def names(self) -> set[str]:
        api = StreamManagementClient(self._management, self._address)
        query: dict[str, str | int] = {"columns": "name,type,arguments"}
        try:
            rows = api.get_json(f"/queues/{quote(self._address.vhost, safe='')}", query)
        except (AccessRefused, NotFound) as error:
            raise ConfigurationError(_list_error(api, error)) from None
        except OSError as error:  # it may be starting, or have stumbled over a queue just declared
            raise StreamListUnavailable(_list_error(api, error)) from None
        return {row["name"] for row in rows if row.get("type") == "stream"}

    def first_offsets(self, names: Collection[str]) -> Offsets:
        seen = self._look({name: StreamProbe("first", 1) for name in names})
        return {name: each.first for name, each in seen.items()}

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        patience = {
            name: STILL_EMPTY_SECONDS if name in known and known[name] is None else EMPTY_SECONDS
            for name in names
        }
        seen = self._look({name: StreamProbe("last", patience=patience[name]) for name in names})
        return {
            name: known.get(name) if each.end is None else each.end for name, each in seen.items()
        }

    def offset_at(self, name: str, moment_ms: int) -> int:
        moment = datetime.fromtimestamp(max(moment_ms, 0) // 1000, UTC)
        seen = self._look({name: StreamProbe(moment, 1)})
        if name not in seen:
            raise NotFound(f"{self._address}: there is no stream {name!r}")
        found = seen[name].first
        # Nothing came then or later: behind all there is.
        return (self.next_offsets([name], {})[name] or 0) if found is None else found

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        with BlockingConnection(self._address, f"spark {wanted}") as connection:
            channel = connection.open_channel()
            prefetch = min(PREFETCH, len(wanted))
            connection.call(channel, BASIC_QOS, prefetch_count=prefetch)
            consumer = f"spark-{token_hex(6)}"  # not to be guessed by whoever writes bodies
            consume = _encode_consume(channel, wanted.stream, consumer, wanted.start)
            connection.send(consume)
            yield from self._follow(connection, channel, consumer.encode(), prefetch, wanted)

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        """RabbitMQ begins a segment with an entry of its own, which takes an offset.

        So one is no loss. More may be entries of its own as well; that messages are missing is
        certain when the stream itself begins behind the place.
        """
        if found - expected <= _SEGMENT_ENTRIES:
            return False
        first = self.first_offsets([name]).get(name)
        return first is None or first > expected + _SEGMENT_ENTRIES

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
        wanted: StreamRange,
    ) -> Iterator[pa.RecordBatch]:
        deliveries = DeliveryParser(channel, consumer, connection.take_rest())
        gathering = DeliveryBatchBuilder(wanted)
        acknowledged = 0
        data = b""  # the first time, what came with the answers before
        while True:
            found, others = deliveries.feed(data)
            for frame in others:
                method = connection.check(frame)
                if method is not None and method.id == BASIC_CANCEL:
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
                connection.send(encode_basic_ack(channel, tag, multiple=True))
            try:
                enough = min(prefetch // 2, last - deliveries.tag)
                data = self._receive(connection, deliveries, enough)
            except TimeoutError:
                if (self.next_offsets([wanted.stream], {})[wanted.stream] or 0) < wanted.stop:
                    raise StreamEnded(f"{wanted} ends early") from None
                raise

    @staticmethod
    def _receive(connection: BlockingConnection, deliveries: DeliveryParser, enough: int) -> bytes:
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

    def _look(self, wanted: Mapping[str, StreamProbe]) -> dict[str, StreamProbe]:
        """What is seen of the streams that are there, over a connection that is kept.

        A stream that was declared a moment ago may still be starting: that is waited for.
        """
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while True:
            if self._looking is None:
                self._looking = BlockingConnection(self._address, "spark offsets")
            try:
                return probe_streams(
                    self._looking, {name: replace(each) for name, each in wanted.items()}
                )
            except (OSError, PenstockError) as error:
                self._looking.abandon()
                self._looking = None
                if not isinstance(error, ConnectionForced) or time.monotonic() > deadline:
                    raise
            time.sleep(_START_RETRY_SECONDS)


def _list_error(api: StreamManagementClient, error: Exception) -> str:
    return (
        "streams: a pattern needs the list of queues, which only the broker's management API has, "
        f"and {api} does not give it ({error}); enable its management plugin and give the user the "
        "management tag, set managementUrl, or write the names out"
    )


# Where streams begin and end, as far as AMQP 0-9-1 lets one see.
#
# No method says it, and the message count of a stream is stale. So a consumer is attached to each
# stream and what is delivered first is looked at: from `first`, the oldest message; from `last`,
# the last chunk, whose end is the stream's.
#
# That the whole chunk has come is not guessed by waiting. A channel delivers all it may before it
# goes on to the next method, so the answer to a method sent after the first delivery (a *fence*)
# comes behind the chunk. A broker that delivers in slices gets another fence as long as the last
# one brought something.
#
# Only an empty stream is told by silence: one that never had a message, or whose last one retention
# has taken. A wait that was too short errs to the safe side, for the stream is looked at again for
# the next batch.

#: Silence that means an empty stream, and one that was empty the last time.
EMPTY_SECONDS: Final = 2.0
STILL_EMPTY_SECONDS: Final = 0.1
#: What has begun to come goes on coming.
CHUNK_SECONDS: Final = 20.0
#: More than a chunk holds.
PROBE_PREFETCH: Final = 65_535
#: A stream that is written to while it is looked at could go on forever.
MAX_FENCES: Final = 20


@dataclass(slots=True)
class StreamProbe:
    """A look at one stream: where from, and what was seen."""

    where: str | int | datetime
    prefetch: int = PROBE_PREFETCH
    patience: float = EMPTY_SECONDS
    first: int | None = None  #: the first offset that was delivered
    end: int | None = None  #: the one after the last
    fences: int = 0
    at_fence: int | None = None  #: the end when the last fence was answered
    done: bool = False

    @property
    def wait(self) -> float:
        return self.patience if self.end is None else CHUNK_SECONDS


def _encode_consume(channel: int, stream: str, tag: str, offset: str | int | datetime) -> bytes:
    return encode_method_frame(
        channel,
        BASIC_CONSUME,
        queue=stream,
        consumer_tag=tag,
        arguments={OFFSET_HEADER: offset},
    )


def probe_streams(
    connection: BlockingConnection, wanted: Mapping[str, StreamProbe]
) -> dict[str, StreamProbe]:
    """Look at all of the streams at once; those that are not there are left out of the answer."""
    # All channels first: waiting for one to open would pass over what comes on another.
    channels = {connection.open_channel(): item for item in wanted.items()}
    for channel, (name, each) in channels.items():
        qos = encode_method_frame(channel, BASIC_QOS, prefetch_count=each.prefetch)
        connection.send(qos + _encode_consume(channel, name, "look", each.where))
    missing = _receive_probes(connection, channels)
    for channel, (name, _) in channels.items():
        if name not in missing:
            connection.close_channel(channel)
    return {name: each for name, each in wanted.items() if name not in missing}


def _receive_probes(
    connection: BlockingConnection, channels: Mapping[int, tuple[str, StreamProbe]]
) -> set[str]:
    """Take in what is delivered until every look is done; the names of streams not there."""
    missing: set[str] = set()
    began = time.monotonic()
    while waiting := [each for _, each in channels.values() if not each.done]:
        left = began + max(each.wait for each in waiting) - time.monotonic()
        try:
            frames = connection.receive(left)
        except TimeoutError:
            if all(each.end is None for each in waiting):
                return missing  # silence: they are empty
            raise
        for frame in frames:
            if frame.channel not in channels:
                continue
            name, each = channels[frame.channel]
            if frame.kind == FRAME_HEADER:
                _record_delivery(each, frame, name)
                if not each.fences:
                    _send_fence(connection, frame.channel, each)
            elif frame.kind == FRAME_METHOD and not each.done:
                method = decode_method(frame.payload)
                if method.id == CHANNEL_CLOSE:
                    _require_not_found(connection, method.arguments)
                    connection.accept_close(frame.channel)
                    missing.add(name)
                    each.done = True
                elif method.id == BASIC_QOS_OK and each.fences:
                    _handle_fence(connection, frame.channel, each)
    return missing


def _record_delivery(each: StreamProbe, frame: AmqpFrame, name: str) -> None:
    try:
        offset, _ = pop_offset(frame.payload)
    except WireSyntaxError:
        raise PreconditionFailed(f"{name!r} is a queue and no stream") from None
    if each.first is None:
        each.first = offset
    each.end = offset + 1


def _send_fence(connection: BlockingConnection, channel: int, each: StreamProbe) -> None:
    each.fences += 1
    if each.prefetch == 1:  # only the first was wanted
        each.done = True
        return
    connection.send(encode_method_frame(channel, BASIC_QOS, prefetch_count=each.prefetch))


def _handle_fence(connection: BlockingConnection, channel: int, each: StreamProbe) -> None:
    """A fence has been answered: done, unless more came before it than before the last one."""
    each.done = each.end == each.at_fence or each.fences >= MAX_FENCES
    each.at_fence = each.end
    if not each.done:
        _send_fence(connection, channel, each)


def _require_not_found(connection: BlockingConnection, close: MethodArguments) -> None:
    """Raises unless the broker closed for a stream that is not there."""
    text = close.reply_text
    error = error_from_close(close.reply_code, text, connection.address)
    if isinstance(error, PreconditionFailed) and OFFSET_HEADER in text:
        raise PreconditionFailed(f"this is a queue and no stream: {error}")
    if not isinstance(error, NotFound):
        raise error
