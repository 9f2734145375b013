"""The measurements of all rounds, and what is made of them: medians, ratios, JSON.

A median over rounds that alternate between the brokers is what is reported; every single run is in
the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from benchmarks.harness.machine import Machine
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.memory import Footprint
from benchmarks.peers import Peer


@dataclass(frozen=True, slots=True)
class Summary:
    """The medians of one scenario on one broker."""

    scenario: str
    peer: str
    rate: float
    broker_cpu_per_million: float
    broker_cpu_per_million_deliveries: float
    generator_cpu_per_million: float
    latency_p50: float
    latency_p99: float
    rss_bytes: float


def summary(runs: Sequence[Measurement]) -> Summary:
    return Summary(
        runs[0].scenario,
        runs[0].peer,
        median(run.rate for run in runs),
        median(run.broker_cpu_per_million for run in runs),
        median(run.broker_cpu_per_million_deliveries for run in runs),
        median(run.generator_cpu_per_million for run in runs),
        median(run.latency_p50 for run in runs),
        median(run.latency_p99 for run in runs),
        median(run.rss_bytes for run in runs),
    )


@dataclass(slots=True)
class Results:
    """Of one run of the program."""

    command: str
    date: str
    machine: Machine
    versions: dict[str, str] = field(default_factory=dict)
    runs: list[Measurement] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)

    def add(self, peer: Peer, figures: Measurement | Footprint) -> None:
        self.versions[peer.name] = peer.version
        if isinstance(figures, Measurement):
            self.runs.append(figures)
        else:
            self.footprints.append(figures)

    @property
    def program(self) -> str:
        """The module that was run, such as `benchmarks.broker`."""
        return self.command.split()[2]

    def scenarios(self) -> Iterable[str]:
        return dict.fromkeys(run.scenario for run in self.runs)

    def summaries(self, scenario: str) -> list[Summary]:
        """One of each broker, in the order they were measured."""
        runs = [run for run in self.runs if run.scenario == scenario]
        peers = dict.fromkeys(run.peer for run in runs)
        return [summary([run for run in runs if run.peer == peer]) for peer in peers]

    def to_json(self) -> str:
        document = asdict(self)
        document["medians"] = [
            asdict(each) for scenario in self.scenarios() for each in self.summaries(scenario)
        ]
        return json.dumps(document, indent=2) + "\n"
