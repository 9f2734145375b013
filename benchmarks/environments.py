"""`python -m benchmarks.environments NAME=PYTHON …`: Penstock from several environments in turn.

Each environment is an interpreter that has Penstock installed: another version of Python, or
another release of Penstock. `here` is always among them. The generator runs in this environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks.bars import PROTOCOLS, Protocol
from benchmarks.harness import command, memory
from benchmarks.harness.rounds import Announce, Trial, loads
from benchmarks.peers import Peer, Starter, start_penstock

_SCHEMES: Final = {"rabbitmq": "amqp", "mosquitto": "mqtt"}


def start(directory: Path, name: str, interpreter: str, scheme: str) -> Peer:
    peer = start_penstock(directory, scheme=scheme, interpreter=interpreter)
    return replace(peer, name=name)


def measure(
    protocol: Protocol,
    scenarios: Sequence[str],
    environments: dict[str, str],
    rounds: int,
    messages: int,
    announce: Announce,
) -> dict[str, dict[str, list[float]]]:
    """CPU seconds per million messages, by scenario and environment."""
    scheme = _SCHEMES[protocol.oldest]
    starters: list[Starter] = [
        partial(start, name=name, interpreter=interpreter, scheme=scheme)
        for name, interpreter in environments.items()
    ]
    chosen: list[Any] = [protocol.scenarios[name] for name in scenarios]
    trial = Trial(chosen, protocol.measure, lambda scenario, _: messages or scenario.messages)
    found: dict[str, dict[str, list[float]]] = {}
    for peer, run in loads(trial, starters, rounds, announce):
        by_peer = found.setdefault(run.scenario, {})
        by_peer.setdefault(peer.name, []).append(run.broker_cpu_per_million)
    return found


def main(
    others: Annotated[list[str], typer.Argument(metavar="NAME=PYTHON")],
    scenario: Annotated[str, typer.Option(help="Comma-separated, of benchmarks.bars.")] = "all",
    rounds: command.Rounds = 3,
    messages: command.Messages = 0,
) -> None:
    """Print the medians of each environment's CPU seconds per million messages."""
    pairs = dict(pair.split("=", 1) for pair in others if "=" in pair)
    if len(pairs) < len(others):
        raise typer.BadParameter("each environment is NAME=PYTHON", param_hint="NAME=PYTHON")
    environments = {"here": sys.executable, **pairs}
    known = [bar.scenario for protocol in PROTOCOLS for bar in protocol.bars]
    wanted = command.names(scenario, known, "--scenario")
    memory.raise_descriptor_limit(memory.CONNECTIONS)
    print(" | ".join(("scenario", *environments)))
    with command.measuring() as announce:
        for protocol in PROTOCOLS:
            scenarios = [bar.scenario for bar in protocol.bars if bar.scenario in wanted]
            if not scenarios:
                continue
            found = measure(protocol, scenarios, environments, rounds, messages, announce)
            for name, figures in found.items():
                medians = (f"{median(figures[other]):.2f}" for other in environments)
                print(" | ".join((name, *medians)), flush=True)


if __name__ == "__main__":
    typer.run(main)
