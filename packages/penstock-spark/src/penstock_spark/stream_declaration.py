"""The streams a flow reads, declared where nobody has done so yet.

A fleet that sends before anybody has declared a stream sends to nobody. So a flow says which stream
it would have, and it is declared, durable, before the query starts. An operator who wants several,
or a limit to what they keep, declares them first: where a stream is there that the flow reads,
nothing is touched. Penstock and RabbitMQ are told alike, over AMQP 0-9-1.
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
    """A stream, and what of an exchange is to be kept in it."""

    stream: str
    exchange: str
    keys: tuple[str, ...]


def declare_missing_streams(url: str, streams: str, wanted: Sequence[StreamDeclaration]) -> None:
    """Declare what is wanted, unless there is a stream already of those that are read."""
    if not wanted:
        return
    address = parse_amqp_url(url)
    if any(_exists(address, each.strip()) for each in streams.split(",")):
        return
    for each in wanted:
        _declare(address, each)
        log.info("stream declared", stream=each.stream, exchange=each.exchange, keys=each.keys)


def _exists(address: AmqpAddress, pattern: str) -> bool:
    """Whether there is such a stream. Only for a pattern the broker has to have a list of them."""
    if any(sign in pattern for sign in "*?["):
        with closing(find_endpoint(address, None).open()) as broker:
            return any(fnmatchcase(name, pattern) for name in broker.names())
    try:
        with BlockingConnection(address, f"looking for {pattern}") as connection:
            connection.call(connection.open_channel(), QUEUE_DECLARE, queue=pattern, passive=True)
    except NotFound:
        return False
    return True


def _declare(address: AmqpAddress, wanted: StreamDeclaration) -> None:
    name = wanted.stream
    with BlockingConnection(address, f"declaring {name}") as connection:
        channel = connection.open_channel()
        connection.call(
            channel, QUEUE_DECLARE, queue=name, durable=True, arguments=_STREAM_ARGUMENTS
        )
        for key in wanted.keys:
            connection.call(
                channel, QUEUE_BIND, queue=name, exchange=wanted.exchange, routing_key=key
            )
