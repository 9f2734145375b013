"""`python -m benchmarks.processes`: several loads on one broker, and on a broker each.

Broker processes behind one address, each with virtual hosts of its own, would share nothing but the
address. So this is the most that they can gain: as many brokers as loads, without anything between
them and their clients. A generator is a process of its own for each load, on the same machine.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Final

import typer

from benchmarks.broker.layout import Layout
from benchmarks.broker.load import measure
from benchmarks.broker.scenarios import SCENARIOS, Queue, Scenario
from benchmarks.harness.rounds import running
from benchmarks.harness.rows import Key
from benchmarks.peers import Peer, start_penstock

_CHOICES: Final = ("a", "a1k", "b", "e")
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Outcome:
    rate: float  #: messages per second of all loads
    cpu_per_million: float  #: seconds of all brokers
    rss_bytes: int


def run(scenario: Scenario, loads: Sequence[Peer], messages: int) -> Outcome:
    """The same load on each of these brokers at the same time; they may be one."""
    together = _fork.Barrier(len(loads))
    results = _fork.SimpleQueue()

    def load(number: int, peer: Peer) -> None:
        together.wait()
        own = _with_own_queue(scenario, number)
        results.put(measure(own, peer, messages, lambda done: None).wall_seconds)

    brokers = {peer.port: peer for peer in loads}.values()
    before = sum(peer.usage().cpu_seconds for peer in brokers)
    generators = [_fork.Process(target=load, args=item) for item in enumerate(loads)]
    for generator in generators:
        generator.start()
    seconds = max(results.get() for _ in generators)
    for generator in generators:
        generator.join()
    after = [peer.usage() for peer in brokers]
    count = messages * len(loads)
    spent = sum(usage.cpu_seconds for usage in after) - before
    return Outcome(count / seconds, spent / count * 1e6, sum(usage.rss_bytes for usage in after))


def _with_own_queue(scenario: Scenario, number: int) -> Scenario:
    name = f"bench{number}"
    layout = scenario.layout
    layout = Layout("", Key(name), layout.body_bytes, layout.persistent)
    return replace(scenario, layout=layout, queues=(Queue(name),))


def main(
    scenario: Annotated[str, typer.Option(help=f"One of {', '.join(_CHOICES)}.")] = "a",
    loads: Annotated[int, typer.Option(min=2)] = 2,
    messages: Annotated[int, typer.Option(min=1, help="Of each load.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Print rate, CPU seconds per million messages and memory of one broker, and of one a load."""
    if scenario not in _CHOICES:
        raise typer.BadParameter(f"{scenario}: not one of {', '.join(_CHOICES)}")
    chosen = SCENARIOS[scenario]
    with ExitStack() as stack:
        brokers = [stack.enter_context(running(start_penstock)) for _ in range(loads)]
        ways = {"one broker": brokers[:1] * loads, "one broker a load": brokers}
        found: dict[str, list[Outcome]] = {name: [] for name in ways}
        for round_ in range(rounds + 1):
            for name, peers in ways.items():
                outcome = run(chosen, peers, messages if round_ else messages // 10)
                if round_:  # the first warms up
                    found[name].append(outcome)
    print(f"({scenario}) {loads} loads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name, outcomes in found.items():
        rate = median(outcome.rate for outcome in outcomes)
        cpu = median(outcome.cpu_per_million for outcome in outcomes)
        memory = median(outcome.rss_bytes for outcome in outcomes) / 1e6
        print(f"{name}: {rate:,.0f} msg/s, {cpu:.2f} CPU-s/1M, {memory:.0f} MB")


if __name__ == "__main__":
    typer.run(main)
