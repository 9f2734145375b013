"""What has moved since the previous release, by the broker's CPU time.

The figures of a release are in `benchmarks/previous.json`: CPU seconds per million messages, by
program and scenario, with the machine they were measured on. CPU time depends little on what else
the machine does, but on the machine itself, so a comparison on another one is labelled as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.results import Results

PREVIOUS: Final = Path(__file__).parents[1] / "previous.json"
#: Two runs of the same program differ by as much on a machine with other load.
_NOISE: Final = 0.1
_BROKER: Final = "penstock"


@dataclass(frozen=True, slots=True)
class Moved:
    """One row, before and now."""

    scenario: str
    before: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.before

    @property
    def verdict(self) -> str:
        if abs(self.ratio - 1) <= _NOISE:
            return "same"
        return "faster" if self.ratio < 1 else "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    release: str
    same_machine: bool
    rows: list[Moved]

    @property
    def title(self) -> str:
        where = "" if self.same_machine else ", which was measured on another machine"
        return f"Broker CPU-s/1M compared with {self.release}{where}"


def compare(results: Results, previous: Path = PREVIOUS) -> Comparison | None:
    """None if the previous release has no figures of this program."""
    document = json.loads(previous.read_text()) if previous.exists() else {}
    figures: dict[str, float] = document.get("programs", {}).get(results.program, {})
    rows = [Moved(name, figures[name], now) for name, now in _cpu(results) if name in figures]
    if not rows:
        return None
    machine = {**document["machine"], "memory_bytes": results.machine.memory_bytes}
    return Comparison(document["release"], machine == asdict(results.machine), rows)


def store(results: Results, previous: Path = PREVIOUS) -> None:
    """Store the figures as those of this release; those of other programs stay, if they are of the
    same release."""
    document: dict[str, Any] = json.loads(previous.read_text()) if previous.exists() else {}
    release = f"{_BROKER} {results.versions[_BROKER]}"
    programs = document["programs"] if document.get("release") == release else {}
    programs[results.program] = {**programs.get(results.program, {}), **dict(_cpu(results))}
    document = {"release": release, "machine": asdict(results.machine), "programs": programs}
    previous.write_text(json.dumps(document, indent=2) + "\n")


def _cpu(results: Results) -> Iterator[tuple[str, float]]:
    for scenario in results.scenarios():
        for summary in results.summaries(scenario):
            if summary.peer == _BROKER:
                yield scenario, round(summary.broker_cpu_per_million, 3)
