"""Runs one scenario once against one broker, and measures it.

The clock and the broker's CPU time run from the first write until the last message has been
received and, where there are dispositions, all of them have been exchanged.
"""

from __future__ import annotations

import select
import time
from contextlib import ExitStack, closing
from typing import Final
from uuid import uuid4

import numpy as np

from benchmarks.amqp10.ends import Receiver, Sender, Talk
from benchmarks.amqp10.scenarios import Scenario
from benchmarks.errors import PeerFailed
from benchmarks.harness.latency import Latencies, percentile
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.pump import Progress
from benchmarks.peers import Peer

_STALL_SECONDS: Final = 30.0
_PROGRESS_SECONDS: Final = 0.5


def measure(scenario: Scenario, peer: Peer, messages: int, progress: Progress) -> Measurement:
    address = f"/queue/bench-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        inward = stack.enter_context(closing(Talk(peer, "bench-receiver")))
        receiver = Receiver(inward, address, scenario)
        outward = stack.enter_context(closing(Talk(peer, "bench-sender")))
        sender = Sender(outward, address, scenario, messages)
        departures = np.zeros(-(-messages // scenario.batch))
        receiver.latencies = Latencies(departures, scenario.batch)
        before, cpu_before = peer.usage(), time.process_time()
        wall = _flow(sender, receiver, inward, outward, messages, scenario, progress)
        generator_cpu = time.process_time() - cpu_before
        after = peer.usage()
    latencies = receiver.latencies.seconds[: messages // scenario.batch]
    return Measurement(
        scenario.name,
        peer.name,
        messages,
        messages,
        wall,
        after.cpu_seconds - before.cpu_seconds,
        generator_cpu,
        percentile(latencies, 50),
        percentile(latencies, 99),
        after.rss_bytes,
    )


def _flow(
    sender: Sender,
    receiver: Receiver,
    inward: Talk,
    outward: Talk,
    messages: int,
    scenario: Scenario,
    progress: Progress,
) -> float:
    assert receiver.latencies is not None
    departures = receiver.latencies.departures
    poll = select.epoll()
    incoming, outgoing = inward.socket.fileno(), outward.socket.fileno()
    poll.register(incoming, select.EPOLLIN)
    poll.register(outgoing, select.EPOLLIN)
    started = shown = time.perf_counter()
    with poll:
        while True:
            stuck = False
            for _ in range(10):
                batch = sender.sent // scenario.batch
                now = time.perf_counter()
                took, count = sender.push(receiver.received)
                if count:
                    departures[batch] = now
                stuck = not took
                if stuck or not count:
                    break
            over = receiver.received == messages
            settled = receiver.push(over)
            if over and settled and (not scenario.unsettled or sender.settled == messages):
                return time.perf_counter() - started
            poll.modify(outgoing, select.EPOLLIN | (select.EPOLLOUT if stuck else 0))
            poll.modify(incoming, select.EPOLLIN | (0 if settled else select.EPOLLOUT))
            events = poll.poll(0 if count and not stuck else _STALL_SECONDS)
            if not events and not count:
                raise PeerFailed(
                    f"nothing moves any more: {sender.sent} sent, {receiver.received} received, "
                    f"{sender.settled} settled"
                )
            for descriptor, event in events:
                if not event & ~select.EPOLLOUT:
                    continue
                if descriptor == incoming:
                    receiver.take(time.perf_counter())
                else:
                    sender.take()
            if (now := time.perf_counter()) - shown > _PROGRESS_SECONDS:
                shown = now
                progress(receiver.received)
