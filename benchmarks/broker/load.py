"""Runs one scenario once against one broker, and measures it.

The clock and the broker's CPU time run from the first write until the last message has been
checked, confirmed and acknowledged; declaring and deleting are outside. When a load has ended the
queues must be empty and nothing more may have been delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np

from benchmarks.broker.acks import Acks
from benchmarks.broker.confirms import Confirms
from benchmarks.broker.connection import CHANNEL, Connection, connect
from benchmarks.broker.layout import Layout
from benchmarks.broker.pingpong import ping_pong
from benchmarks.broker.scenarios import Scenario
from benchmarks.errors import WrongDelivery
from benchmarks.harness.checker import Checker
from benchmarks.harness.consumer import Consumer
from benchmarks.harness.latency import Latencies, Seconds, percentile
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.publisher import Publisher
from benchmarks.harness.pump import BATCH, Progress, Pump, Window
from benchmarks.harness.rows import Rows
from benchmarks.peers import Peer

_CONSUMER_TAG: Final = "bench"
#: What the generator reads, checks and prepares at once: large, and still in the CPU's cache.
_BUFFER_BYTES: Final = 256 * 1024
#: Prepared but unsent rows of the ping-pong, and so many are checked at once.
_RALLY: Final = 1_000


def measure(scenario: Scenario, peer: Peer, messages: int, progress: Progress) -> Measurement:
    with ExitStack() as stack:
        publisher = stack.enter_context(_connected(peer))
        scenario.declare(publisher)
        consumers = [stack.enter_context(_connected(peer)) for _ in scenario.queues]
        for consumer, queue in zip(consumers, scenario.queues, strict=True):
            consumer.consume(queue.name, _CONSUMER_TAG, prefetch=scenario.prefetch)
        if scenario.outstanding:
            publisher.select_confirms()
        before, cpu_before = peer.usage(), time.process_time()
        run = _rally if scenario.one_in_flight else _flow
        wall, latencies = run(scenario, publisher, consumers, messages, progress)
        generator_cpu = time.process_time() - cpu_before
        # An answer to each consumer means that the broker has handled all that came before.
        for consumer in consumers:
            consumer.socket.settimeout(None)
            consumer.cancel(_CONSUMER_TAG)
        after = peer.usage()
        publisher.socket.settimeout(None)
        if left := scenario.delete(publisher):
            raise WrongDelivery(f"{left} messages were left after all had been received")
    return Measurement(
        scenario.name,
        peer.name,
        messages,
        messages * len(consumers),
        wall,
        after.cpu_seconds - before.cpu_seconds,
        generator_cpu,
        percentile(latencies, 50),
        percentile(latencies, 99),
        after.rss_bytes,
    )


def _flow(
    scenario: Scenario,
    publisher: Connection,
    consumers: list[Connection],
    messages: int,
    progress: Progress,
) -> tuple[float, Seconds]:
    confirms = [Confirms()] if scenario.outstanding else []
    rows = _published(scenario.layout)
    source = Publisher([publisher.socket], rows, messages, BATCH, confirms)
    sinks = [
        Consumer(
            consumer.socket,
            Checker(_delivered(scenario.layout), messages),
            Latencies(source.departures, BATCH),
            Acks() if scenario.prefetch else None,
        )
        for consumer in consumers
    ]
    window = Window(unconfirmed=scenario.outstanding)
    wall = Pump(source, sinks, messages, window).run(progress)
    for sink in sinks:
        sink.checker.finish()
    return wall, np.concatenate([sink.latencies.seconds for sink in sinks])


def _rally(
    scenario: Scenario,
    publisher: Connection,
    consumers: list[Connection],
    messages: int,
    progress: Progress,
) -> tuple[float, Seconds]:
    published = scenario.layout.published(CHANNEL, _RALLY)
    checker = Checker(scenario.layout.delivered(CHANNEL, _CONSUMER_TAG, _RALLY), messages)
    began = time.perf_counter()
    seconds = ping_pong(publisher.socket, consumers[0].socket, published, checker, progress)
    wall = time.perf_counter() - began
    checker.finish()
    return wall, seconds


def _published(layout: Layout) -> Rows:
    """A whole number of batches, as many as fit."""
    stride = layout.published(CHANNEL, 1).stride
    return layout.published(CHANNEL, max(1, _BUFFER_BYTES // stride // BATCH) * BATCH)


def _delivered(layout: Layout) -> Rows:
    stride = layout.delivered(CHANNEL, _CONSUMER_TAG, 1).stride
    return layout.delivered(CHANNEL, _CONSUMER_TAG, _BUFFER_BYTES // stride)


@contextmanager
def _connected(peer: Peer) -> Iterator[Connection]:
    connection = connect(peer.port)
    try:
        yield connection
    finally:
        connection.close()
