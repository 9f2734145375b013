"""A stream with days of a simulated fleet in it, as a broker would have kept them.

The broker itself can only take in what comes now, so its log is written while it is down: the same
files, with the times at which the frames arrived. Frames come in gateways' batches of a hundred,
which is how far the time of one may be from its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.spark.peers import Peer, start_with_management
from penstock.broker.contract import Message
from penstock.broker.log import Committer, Log
from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_shortstr,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.methods import QUEUE_BIND, QUEUE_DECLARE
from penstock_hives.sensors.fleet import Fleet

STREAM: Final = "sensors"
EXCHANGE: Final = "amq.topic"
_A_BATCH: Final = 100
_SAID: Final = BasicProperties(delivery_mode=PERSISTENT)
_DURABLE: Final = 1  # a message's flag


def url_of(peer: Peer) -> str:
    return f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F"


@contextmanager
def broker_with(fleet: Fleet | None, folder: Path, reports: int) -> Iterator[Peer]:
    """A broker whose stream `sensors` has so many of the fleet's frames, or is empty."""
    peer = start_with_management("penstock", folder)
    declare(url_of(peer))
    if fleet is not None:
        peer.close()
        (directory,) = (folder / "data").glob("**/streams/*/*")
        _write(directory, fleet, reports)
        peer = start_with_management("penstock", folder)
    try:
        yield peer
    finally:
        peer.close()


def declare(url: str) -> None:
    with contextlib.closing(BlockingConnection(parse_amqp_url(url))) as connection:
        channel = connection.open_channel()
        stream = {"x-queue-type": "stream"}
        connection.call(channel, QUEUE_DECLARE, queue=STREAM, durable=True, arguments=stream)
        key = f"{STREAM}.#"
        connection.call(channel, QUEUE_BIND, queue=STREAM, exchange=EXCHANGE, routing_key=key)


def _write(directory: Path, fleet: Fleet, reports: int) -> None:
    loop = asyncio.new_event_loop()
    committer = Committer(loop, on_fault=print, on_recovered=lambda: None)
    now = 0
    log = Log(directory, committer, now=lambda: now)
    for times, messages in _batches(fleet, reports):
        now = times
        for message in messages:
            log.append(message)
        committer.write()
    log.close()
    loop.run_until_complete(committer.close())
    loop.close()


def _batches(fleet: Fleet, reports: int) -> Iterator[tuple[int, list[Message]]]:
    """When the first of them came, and the messages."""
    routes: dict[str, bytes] = {}
    headers: dict[int, bytes] = {}
    left = reports
    for window in fleet.windows():
        times = window.frames["timestamp"].cast(pa.int64()).to_pylist()
        keys = window.frames["routing_key"].to_pylist()
        bodies = window.frames["body"].to_pylist()
        for start in range(0, min(len(times), left), _A_BATCH):
            stop = min(start + _A_BATCH, len(times), start + left)
            messages = []
            for key, body in zip(keys[start:stop], bodies[start:stop], strict=True):
                route = routes.get(key)
                if route is None:
                    route = encode_shortstr(EXCHANGE, "exchange") + encode_shortstr(
                        key, "routing_key"
                    )
                    routes[key] = route
                header = headers.get(len(body))
                if header is None:
                    header = encode_header(_SAID, len(body))
                    headers[len(body)] = header
                messages.append(Message(route, header, body, _DURABLE))
            left -= len(messages)
            yield times[start], messages
        if left <= 0:
            return
