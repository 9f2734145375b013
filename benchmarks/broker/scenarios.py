"""What is measured: the scenarios of the broker's specification, as data.

A scenario names its topology, its messages and the guarantees asked for; `load` runs any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.broker.connection import Connection
from benchmarks.broker.layout import Layout
from benchmarks.harness.rows import Column, Key, Octets, Sequences, decimals, word

_BINDINGS: Final = 1_000
#: Shapes of binding patterns: `{}` is the word that tells one binding from the others.
_PATTERNS: Final = ("k.{}.*.x", "k.{}.#", "*.{}.*.x", "k.{}.*.#")
#: Coprime to the number of bindings, so that a run visits all of them, not in their order.
_SCATTER: Final = 617


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table. Rates and CPU are per message published, whatever its copies."""

    name: str
    title: str
    layout: Layout
    queues: tuple[Queue, ...]
    messages: int  #: of one run, unless the caller wants another number
    exchange_type: str = ""  #: none to declare: the default exchange
    durable: bool = False
    outstanding: int = 0  #: unconfirmed messages allowed; none: without confirms
    prefetch: int = 0  #: unacknowledged deliveries allowed; none: automatic acknowledgement
    one_in_flight: bool = False

    def declare(self, connection: Connection) -> None:
        if self.exchange_type:
            connection.declare_exchange(self.layout.exchange, self.exchange_type)
        for queue in self.queues:
            connection.declare_queue(queue.name, durable=self.durable)
            for key in queue.keys:
                connection.bind(queue.name, self.layout.exchange, key)

    def delete(self, connection: Connection) -> int:
        """How many messages were left in the queues."""
        left = sum(connection.delete_queue(queue.name) for queue in self.queues)
        if self.exchange_type:
            connection.delete_exchange(self.layout.exchange)
        return left


def _binding_word(sequences: Sequences) -> Octets:
    binding = (sequences * np.uint64(_SCATTER)) % np.uint64(_BINDINGS)
    return _DECIMALS.take(binding, axis=0)


_DECIMALS: Final = decimals(_BINDINGS, 3)

#: Each key has a word of its own, so no routing cache has seen it, and matches one binding.
_FRESH_KEY: Final = Key("k.000.aaaaaaaa.x", (Column(2, 3, _binding_word), Column(6, 8, word)))
_TOPIC_BINDINGS: Final = tuple(
    _PATTERNS[binding % len(_PATTERNS)].format(f"{binding:03}") for binding in range(_BINDINGS)
)


def _direct(body_bytes: int, *, persistent: bool = False) -> Layout:
    return Layout("", Key("bench"), body_bytes, persistent)


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "a",
            "transient, auto-ack, 16 B, 1 → 1",
            _direct(16),
            (Queue("bench"),),
            messages=1_000_000,
        ),
        Scenario(
            "a1k",
            "transient, auto-ack, 1 KiB, 1 → 1",
            _direct(1024),
            (Queue("bench"),),
            messages=500_000,
        ),
        Scenario(
            "b",
            "persistent, confirms (≤ 1,000), acks (prefetch 500, multiple every 100), 16 B",
            _direct(16, persistent=True),
            (Queue("bench"),),
            messages=300_000,
            durable=True,
            outstanding=1_000,
            prefetch=500,
        ),
        Scenario(
            "c",
            "fanout to 5 queues, 5 consumers, 16 B (counted in)",
            Layout("bench.fanout", Key("bench"), 16),
            tuple(Queue(f"bench.{number}", ("",)) for number in range(5)),
            messages=200_000,
            exchange_type="fanout",
        ),
        Scenario(
            "d",
            "topic, 1,000 bindings, keys that never repeat, 16 B",
            Layout("bench.topic", _FRESH_KEY, 16),
            (Queue("bench", _TOPIC_BINDINGS),),
            messages=200_000,
            exchange_type="topic",
        ),
        Scenario(
            "e",
            "ping-pong, 1 message in flight, 16 B",
            _direct(16),
            (Queue("bench"),),
            messages=50_000,
            one_in_flight=True,
        ),
    )
}
