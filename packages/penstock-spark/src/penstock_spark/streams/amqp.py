"""Reads streams of any broker with AMQP 0-9-1 streams, such as RabbitMQ.

A range is consumed from its first offset on. AMQP has no timestamps of the broker: the column is
null and is filled from what the publisher wrote (`connector/columns.py`). Only the management API
lists streams, so patterns need it.

No method returns where a stream begins and ends, and its message count is stale. So a consumer is
attached to each stream: from `first` it gets the oldest message, from `last` the last chunk, whose
end is the stream's. To find the end of the chunk without a timeout, a method is sent after the
first delivery (a *fence*): a channel delivers all it can before it handles the next method, so the
answer comes after the chunk. Brokers that deliver in slices get further fences, as long as the last
one brought deliveries. Only an empty stream needs a timeout. One that was too short does no harm,
because the stream is probed again for the next batch.
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
from penstock.client.management import ManagementClient
from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    ConnectionForced,
    NotFound,
    PenstockError,
    PreconditionFailed,
    WireSyntaxError,
)
from penstock.core.retry import RetryPolicy, retry
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
from penstock_spark.streams.backend import Offsets, StreamEnded, StreamRange, estimate_limit
from penstock_spark.streams.deliveries import DeliveryBatchBuilder, DeliveryParser
from penstock_spark.streams.offsets import OFFSET_HEADER, pop_offset

#: More than are in flight in a round trip, and no more than a broker should hold.
PREFETCH: Final = 10_000
#: Received bytes are parsed when they are half of the prefetch, or all of the range, or this many,
#: or after a pause.
BLOCK_BYTES: Final = 4 << 20
PAUSE_SECONDS: Final = 0.02
#: After this time without bytes, the end of the stream is checked.
STALL_SECONDS: Final = 5.0
#: For a stream that is starting.
_START_RETRY: Final = RetryPolicy.fixed(0.2, total=5.0)
#: RabbitMQ uses an offset for an entry of its own at the beginning of a segment.
_SEGMENT_ENTRIES: Final = 1


#: For each read of an answer of the management API.
MANAGEMENT_TIMEOUT_SECONDS: Final = 60.0


class AmqpStreamBackend:
    """Implements `StreamBackend`."""

    def __init__(self, address: AmqpAddress, management: str) -> None:
        self._address = address
        self._management = management
        self._probe_connection: BlockingConnection | None = None

    def names(self) -> set[str]:
        api = stream_management_client(self._management, self._address)
        query: dict[str, str | int] = {"columns": "name,type,arguments"}
        try:
            rows = api.get_json(f"/queues/{quote(self._address.vhost, safe='')}", query)
        except (AccessRefused, NotFound) as error:
            raise ConfigurationError(_list_error(api, error)) from None
        except OSError as error:  # it may be starting
            raise StreamListUnavailable(_list_error(api, error)) from None
        return {row["name"] for row in rows if row.get("type") == "stream"}

    def first_offsets(self, names: Collection[str]) -> Offsets:
        seen = self._probe({name: StreamProbe("first", 1) for name in names})
        return {name: each.first for name, each in seen.items()}

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        silence = {
            name: STILL_EMPTY_SECONDS if name in known and known[name] is None else EMPTY_SECONDS
            for name in names
        }
        seen = self._probe({name: StreamProbe("last", silence=silence[name]) for name in names})
        return {
            name: known.get(name) if each.end is None else each.end for name, each in seen.items()
        }

    def offset_at(self, name: str, moment_ms: int) -> int:
        moment = datetime.fromtimestamp(max(moment_ms, 0) // 1000, UTC)
        seen = self._probe({name: StreamProbe(moment, 1)})
        if name not in seen:
            raise NotFound(f"{self._address}: no stream {name!r}")
        found = seen[name].first
        # No message at that time or later: the end of the stream.
        return (self.next_offsets([name], {})[name] or 0) if found is None else found

    def limit_bytes(self, wanted: StreamRange, most: int) -> int:
        return estimate_limit(self, wanted, most)

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        with BlockingConnection(self._address, f"spark {wanted}") as connection:
            channel = connection.open_channel()
            prefetch = min(PREFETCH, len(wanted))
            connection.call(channel, BASIC_QOS, prefetch_count=prefetch)
            consumer = f"spark-{token_hex(6)}"  # publishers cannot guess it
            consume = _encode_consume(channel, wanted.stream, consumer, wanted.start)
            connection.send(consume)
            yield from self._consume(connection, channel, consumer.encode(), prefetch, wanted)

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        """A gap of one may be RabbitMQ's entry at the beginning of a segment. A larger one is a
        loss only if the stream begins after it."""
        if found - expected <= _SEGMENT_ENTRIES:
            return False
        first = self.first_offsets([name]).get(name)
        return first is None or first > expected + _SEGMENT_ENTRIES

    def close(self) -> None:
        if self._probe_connection is not None:
            self._probe_connection.close()
            self._probe_connection = None

    def _consume(
        self,
        connection: BlockingConnection,
        channel: int,
        consumer: bytes,
        prefetch: int,
        wanted: StreamRange,
    ) -> Iterator[pa.RecordBatch]:
        deliveries = DeliveryParser(channel, consumer, connection.take_rest())
        builder = DeliveryBatchBuilder(wanted)
        acknowledged = 0
        data = b""  # first, the bytes received with earlier answers
        while True:
            found, others = deliveries.feed(data)
            for frame in others:
                method = connection.check(frame)
                if method is not None and method.id == BASIC_CANCEL:
                    raise ConnectionResetError(
                        f"{self._address} cancelled the consumer of {wanted}"
                    )
            for each in found:
                batch = builder.batch(each)
                if batch is not None:
                    yield batch
                if builder.complete:
                    return
            # Credit only for the rest of the range.
            last = len(wanted) + builder.early
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
                    raise StreamEnded(f"the stream ends before {wanted} does") from None
                raise

    @staticmethod
    def _receive(connection: BlockingConnection, deliveries: DeliveryParser, enough: int) -> bytes:
        """The bytes of enough deliveries, or those before a pause."""
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

    def _probe(self, wanted: Mapping[str, StreamProbe]) -> dict[str, StreamProbe]:
        """Probe the streams that exist, over a cached connection.

        Waits for a stream that was just declared and is starting.
        """

        def probe() -> dict[str, StreamProbe]:
            if self._probe_connection is None:
                self._probe_connection = BlockingConnection(self._address, "spark offsets")
            try:
                return probe_streams(
                    self._probe_connection, {name: replace(each) for name, each in wanted.items()}
                )
            except (OSError, PenstockError):
                self._probe_connection.abandon()
                self._probe_connection = None
                raise

        return retry(probe, _START_RETRY, lambda error: isinstance(error, ConnectionForced))


def stream_management_client(url: str, address: AmqpAddress) -> ManagementClient:
    """A client with the credentials of a broker's address."""
    try:
        return ManagementClient(
            url,
            address.user,
            address.password,
            authorities=address.authorities,
            timeout=MANAGEMENT_TIMEOUT_SECONDS,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"managementUrl: {error}") from None


def _list_error(api: ManagementClient, error: Exception) -> str:
    return (
        "streams: a pattern needs the list of queues from the management API, "
        f"which failed at {api} ({error}); enable its management plugin and give the user the "
        "management tag, set managementUrl, or write the names out"
    )


#: The timeout for an empty stream, and for one that was empty in the last probe.
EMPTY_SECONDS: Final = 2.0
STILL_EMPTY_SECONDS: Final = 0.1
#: The timeout within a chunk.
CHUNK_SECONDS: Final = 20.0
#: More messages than a chunk has.
PROBE_PREFETCH: Final = 65_535
#: Limits the probe of a stream that is being written to.
MAX_FENCES: Final = 20


@dataclass(slots=True)
class StreamProbe:
    where: str | int | datetime
    prefetch: int = PROBE_PREFETCH
    silence: float = EMPTY_SECONDS
    first: int | None = None  #: the first delivered offset
    end: int | None = None  #: the offset after the last delivered one
    fences: int = 0
    at_fence: int | None = None  #: the end when the last fence was answered
    done: bool = False

    @property
    def wait(self) -> float:
        return self.silence if self.end is None else CHUNK_SECONDS


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
    """Probe all streams at once; missing ones are omitted from the result."""
    # Open all channels first: waiting for one would discard frames of the others.
    channels = {connection.open_channel(): item for item in wanted.items()}
    for channel, (name, each) in channels.items():
        qos = encode_method_frame(channel, BASIC_QOS, prefetch_count=each.prefetch)
        connection.send(qos + _encode_consume(channel, name, "probe", each.where))
    missing = _receive_probes(connection, channels)
    for channel, (name, _) in channels.items():
        if name not in missing:
            connection.close_channel(channel)
    return {name: each for name, each in wanted.items() if name not in missing}


def _receive_probes(
    connection: BlockingConnection, channels: Mapping[int, tuple[str, StreamProbe]]
) -> set[str]:
    """Receive deliveries until every probe is complete; returns the names of missing streams."""
    missing: set[str] = set()
    began = time.monotonic()
    while waiting := [each for _, each in channels.values() if not each.done]:
        left = began + max(each.wait for each in waiting) - time.monotonic()
        try:
            frames = connection.receive(left)
        except TimeoutError:
            if all(each.end is None for each in waiting):
                return missing  # they are empty
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
        raise PreconditionFailed(f"{name!r} is not a stream but a queue") from None
    if each.first is None:
        each.first = offset
    each.end = offset + 1


def _send_fence(connection: BlockingConnection, channel: int, each: StreamProbe) -> None:
    each.fences += 1
    if each.prefetch == 1:  # only the first message is needed
        each.done = True
        return
    connection.send(encode_method_frame(channel, BASIC_QOS, prefetch_count=each.prefetch))


def _handle_fence(connection: BlockingConnection, channel: int, each: StreamProbe) -> None:
    """A fence was answered: complete, unless it brought further deliveries."""
    each.done = each.end == each.at_fence or each.fences >= MAX_FENCES
    each.at_fence = each.end
    if not each.done:
        _send_fence(connection, channel, each)


def _require_not_found(connection: BlockingConnection, close: MethodArguments) -> None:
    """Raise unless the broker closed the channel for a missing stream."""
    text = close.reply_text
    error = error_from_close(close.reply_code, text, connection.address)
    if isinstance(error, PreconditionFailed) and OFFSET_HEADER in text:
        raise PreconditionFailed(f"not a stream but a queue: {error}")
    if not isinstance(error, NotFound):
        raise error
