"""Runs one scenario once against one broker, and measures it.

The clock and the broker's CPU time run from the first write until the last message has been
checked, confirmed and acknowledged; declaring and deleting are outside. When a load has ended the
queues must be empty and nothing more may have been delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.broker.checker import Checker
from benchmarks.broker.confirms import Confirms
from benchmarks.broker.connection import CHANNEL, Connection, connect
from benchmarks.broker.endpoints import Consumer, Publisher
from benchmarks.broker.latency import BATCH, Latencies, Seconds, percentile
from benchmarks.broker.pingpong import ping_pong
from benchmarks.broker.pump import Progress, Pump
from benchmarks.broker.rows import Layout, Rows
from benchmarks.broker.scenarios import Scenario
from benchmarks.errors import WrongDelivery
from benchmarks.peers import Peer

_CONSUMER_TAG: Final = "bench"
#: What the generator reads, checks and prepares at once: large, and still in the CPU's cache.
_BUFFER_BYTES: Final = 256 * 1024
#: Prepared but unsent rows of the ping-pong, and so many are checked at once.
_RALLY: Final = 1_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run."""

    scenario: str
    peer: str
    messages: int
    wall_seconds: float
    broker_cpu_seconds: float
    generator_cpu_seconds: float
    latency_p50: float
    latency_p99: float
    rss_bytes: int

    @property
    def rate(self) -> float:
        return self.messages / self.wall_seconds

    @property
    def broker_cpu_per_million(self) -> float:
        return self.broker_cpu_seconds / self.messages * 1e6

    @property
    def generator_cpu_per_million(self) -> float:
        return self.generator_cpu_seconds / self.messages * 1e6


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
    confirms = Confirms() if scenario.outstanding else None
    source = Publisher(publisher.socket, _published(scenario.layout), messages, confirms)
    sinks = [
        Consumer(
            consumer.socket,
            Checker(_delivered(scenario.layout), messages),
            Latencies(source.departures),
            acknowledges=bool(scenario.prefetch),
        )
        for consumer in consumers
    ]
    wall = Pump(source, sinks, messages, scenario.outstanding).run(progress)
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
