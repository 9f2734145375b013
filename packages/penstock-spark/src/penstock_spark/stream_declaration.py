"""Declares the streams that a flow reads, if none of them exists.

Publishers that start before a stream is declared would lose their messages, so it is declared,
durable, before the query starts. Where a stream of the flow exists, nothing is changed: an operator
may declare several, or set limits. Works alike with Penstock and RabbitMQ, over AMQP 0-9-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import AmqpAddress, parse_amqp_url
from penstock.wire.amqp091.methods import QUEUE_BIND, QUEUE_DECLARE
from penstock_spark.streams.endpoint import find_endpoint

log = get_logger(__name__)

_STREAM_ARGUMENTS: Final = {"x-queue-type": "stream"}


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    stream: str
    exchange: str
    keys: tuple[str, ...]


def declare_missing_streams(
    url: str,
    streams: str,
    wanted: Sequence[StreamDeclaration],
    management_url: str | None = None,
) -> None:
    """Declare the wanted streams, unless one of `streams` (names and patterns) exists."""
    if not wanted:
        return
    address = parse_amqp_url(url)
    if any(_exists(address, each.strip(), management_url) for each in streams.split(",")):
        return
    for each in wanted:
        _declare(address, each)
        log.info("stream declared", stream=each.stream, exchange=each.exchange, keys=each.keys)


def ensure_stream(url: str, wanted: StreamDeclaration) -> None:
    """Declare a stream if it does not exist, and bind it in any case."""
    address = parse_amqp_url(url)
    _declare(address, wanted, exists=_exists(address, wanted.stream))


def _exists(address: AmqpAddress, pattern: str, management_url: str | None = None) -> bool:
    """Whether the stream exists; only a pattern needs the list of streams."""
    if any(sign in pattern for sign in "*?["):
        with closing(find_endpoint(address, management_url).open()) as broker:
            return any(fnmatchcase(name, pattern) for name in broker.names())
    try:
        with BlockingConnection(address, f"probe {pattern}") as connection:
            connection.call(connection.open_channel(), QUEUE_DECLARE, queue=pattern, passive=True)
    except NotFound:
        return False
    return True


def _declare(address: AmqpAddress, wanted: StreamDeclaration, *, exists: bool = False) -> None:
    name = wanted.stream
    with BlockingConnection(address, f"declare {name}") as connection:
        channel = connection.open_channel()
        if not exists:
            connection.call(
                channel, QUEUE_DECLARE, queue=name, durable=True, arguments=_STREAM_ARGUMENTS
            )
        for key in wanted.keys:
            connection.call(
                channel, QUEUE_BIND, queue=name, exchange=wanted.exchange, routing_key=key
            )
