"""How fast each way to read is, and what it costs: rounds in which the ways take turns.

CPU time is read from /proc for the broker and for whoever reads, which is this process with all it
has started: Spark's driver and its Python workers.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.harness.rounds import Announce
from benchmarks.peers import Peer
from benchmarks.usage import usage_of


@dataclass(frozen=True, slots=True)
class Way:
    """A way to read so many rows."""

    name: str
    rows: int
    work: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Round:
    seconds: float
    broker_cpu: float
    reader_cpu: float


@dataclass(slots=True)
class Rate:
    """Of one way, over rounds in a warm session."""

    name: str
    rows: int
    rounds: list[Round] = field(default_factory=list)

    @property
    def median(self) -> float:
        return self.rows / statistics.median(each.seconds for each in self.rounds)

    @property
    def broker_cpu_per_million(self) -> float:
        return statistics.median(each.broker_cpu for each in self.rounds) / self.rows * 1e6

    @property
    def reader_cpu_per_million(self) -> float:
        return statistics.median(each.reader_cpu for each in self.rounds) / self.rows * 1e6


def in_turns(peer: Peer, ways: Sequence[Way], rounds: int, announce: Announce) -> list[Rate]:
    """A first round is not counted: code is compiled, workers start, files come into memory."""
    rates = [Rate(way.name, way.rows) for way in ways]
    advance = announce(f"reading from {peer.name}", (rounds + 1) * len(ways))
    for number in range(rounds + 1):
        for place, (way, rate) in enumerate(zip(ways, rates, strict=True)):
            advance(number * len(ways) + place)
            measured = _measured(peer, way)
            if number:
                rate.rounds.append(measured)
    return rates


def _measured(peer: Peer, way: Way) -> Round:
    broker, reader = _cpu(peer)
    start = time.perf_counter()
    way.work()
    seconds = time.perf_counter() - start
    broker_then, reader_then = _cpu(peer)
    return Round(seconds, broker_then - broker, reader_then - reader)


def _cpu(peer: Peer) -> Iterator[float]:
    broker = peer.usage().cpu_seconds
    yield broker
    # The broker is a child of this process as well.
    yield usage_of([os.getpid()]).cpu_seconds - broker
