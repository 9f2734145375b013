"""Runs one scenario once against one broker, and measures it.

The clock and the broker's CPU time run from the first write until the last message has been
received, and answered on both sides at QoS 1; connecting and subscribing are outside. When a load
has ended, nothing more may come.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np

from benchmarks.harness.checker import Checker
from benchmarks.harness.consumer import Consumer
from benchmarks.harness.latency import Latencies, Seconds, percentile
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.order import InOrder, Interleaved, Order
from benchmarks.harness.publisher import Publisher
from benchmarks.harness.pump import Progress, Pump, Window
from benchmarks.harness.rows import Rows
from benchmarks.mqtt.answers import Acknowledgements, Pubacks
from benchmarks.mqtt.connection import Connection, connected
from benchmarks.mqtt.layout import Layout
from benchmarks.mqtt.scenarios import Scenario
from benchmarks.peers import Peer

#: What the generator reads, checks and prepares at once: large, and still in the CPU's cache.
_BUFFER_BYTES: Final = 256 * 1024
#: Many subscribers share that, but not to the point where each read is a small one.
_LEAST_BUFFER_BYTES: Final = 32 * 1024
_PUBACK_BYTES: Final = 4


def measure(scenario: Scenario, peer: Peer, messages: int, progress: Progress) -> Measurement:
    layout = scenario.layout
    with ExitStack() as stack:

        def client(role: str, index: int) -> Connection:
            name = f"bench-{role}-{index}"
            return stack.enter_context(connected(peer, layout.version, name))

        subscribers = [client("subscriber", index) for index in range(scenario.subscribers)]
        for subscriber in subscribers:
            subscriber.ask_to_subscribe(layout.filter, layout.qos)
            subscriber.subscribed(layout.qos)
        publishers = [client("publisher", index) for index in range(layout.turns.publishers)]
        before, cpu_before = peer.usage(), time.process_time()
        wall, latencies = _flow(scenario, publishers, subscribers, messages, progress)
        generator_cpu = time.process_time() - cpu_before
        for subscriber in subscribers:  # the broker has handled their last answers
            subscriber.settle()
        after = peer.usage()
        for publisher in publishers:
            publisher.settle()
    return Measurement(
        scenario.name,
        peer.name,
        messages,
        messages * len(subscribers),
        wall,
        after.cpu_seconds - before.cpu_seconds,
        generator_cpu,
        percentile(latencies, 50),
        percentile(latencies, 99),
        after.rss_bytes,
    )


def _flow(
    scenario: Scenario,
    publishers: Sequence[Connection],
    subscribers: Sequence[Connection],
    messages: int,
    progress: Progress,
) -> tuple[float, Seconds]:
    layout = scenario.layout
    batch = layout.turns.batch
    answers = _answers(scenario, messages)
    sockets = [publisher.socket for publisher in publishers]
    source = Publisher(sockets, _published(layout), messages, batch, answers)
    expected = _delivered(layout, len(subscribers))
    sinks = [
        Consumer(
            subscriber.socket,
            Checker(expected, messages, _order(layout), layout.free),
            Latencies(source.departures, batch),
            Acknowledgements(layout.free) if layout.qos else None,
        )
        for subscriber in subscribers
    ]
    wall = Pump(source, sinks, messages, _window(scenario, publishers)).run(progress)
    for sink in sinks:
        sink.checker.finish()
    for answer in answers:
        answer.finish()
    return wall, np.concatenate([sink.latencies.seconds for sink in sinks])


def _answers(scenario: Scenario, messages: int) -> list[Pubacks]:
    """What each publisher must be told."""
    turns = scenario.layout.turns
    if not scenario.layout.qos:
        return []
    capacity = _BUFFER_BYTES // turns.publishers // _PUBACK_BYTES
    return [
        Pubacks(turns.share(messages, publisher), capacity) for publisher in range(turns.publishers)
    ]


def _window(scenario: Scenario, publishers: Sequence[Connection]) -> Window:
    """No more unanswered than the broker allows, which matters in 5.0."""
    window = scenario.window
    allowed = sum(publisher.receive_maximum for publisher in publishers)
    return Window(window.ahead, min(window.unconfirmed, allowed))


def _order(layout: Layout) -> Order:
    turns = layout.turns
    if turns.publishers == 1:
        return InOrder()
    return Interleaved(turns.publishers, turns.batch, layout.number_at)


def _published(layout: Layout) -> Rows:
    """A whole number of batches, as many as fit."""
    batch = layout.turns.batch
    stride = layout.published(1).stride
    return layout.published(max(1, _BUFFER_BYTES // stride // batch) * batch)


def _delivered(layout: Layout, subscribers: int) -> Rows:
    """What is expected is the same for all subscribers: they share the rows it is written into."""
    stride = layout.delivered(1).stride
    return layout.delivered(max(_BUFFER_BYTES // subscribers, _LEAST_BUFFER_BYTES) // stride)
