"""`python -m benchmarks.broker`: Penstock and RabbitMQ under the same load, side by side."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from benchmarks.broker.load import measure
from benchmarks.broker.memory import IDLE
from benchmarks.broker.scenarios import SCENARIOS
from benchmarks.harness import command, memory, rounds
from benchmarks.harness.report import Account
from benchmarks.peers import AMQP_STARTERS, Starter, start_penstock

_CHOICES: Final = [*SCENARIOS, "memory"]

_ACCOUNT: Final = Account(
    "The broker's benchmarks",
    "Each figure is the median of several rounds. The brokers alternate in each round. Brokers "
    "and generator run on the same machine and use loopback. The generator writes prebuilt "
    "frames, 100 messages per write, and stays at most 20,000 messages ahead of the slowest "
    "consumer. It checks count, order and content of everything that arrives. Rates and CPU "
    "seconds are per published message. CPU time is the user and system time of all processes of "
    "the broker. Latency under load is measured from the write of a batch to the arrival of its "
    "last message, so it is mostly the time in the window; in (e) it is the latency of one "
    "message. The generator's CPU time shows that it is not the limit. RSS is read at the end of "
    "a run. A ratio is the first broker's figure divided by the other's.",
    {name: scenario.title for name, scenario in SCENARIOS.items()},
)


def main(
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(_CHOICES)}; or all.")
    ] = "all",
    peers: command.Peers = command.PRESENT,
    rounds_: command.Rounds = 3,
    messages: command.Messages = 0,
    connections: command.Connections = memory.CONNECTIONS,
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
    profile: command.Profile = None,
    stored: command.Store = False,
) -> None:
    """Measure brokers: rate, CPU, latency, memory; and check every message that arrives."""
    wanted = command.names(scenario, _CHOICES, "--scenario")
    starters: dict[str, Starter] = {**AMQP_STARTERS}
    starters["penstock"] = partial(start_penstock, profile=profile)
    chosen = command.chosen_peers(peers, starters)
    if quick:
        rounds_, messages = 1, messages or command.QUICK_MESSAGES
        connections = min(connections, command.QUICK_CONNECTIONS)
    trial = rounds.Trial(
        [SCENARIOS[name] for name in wanted if name in SCENARIOS],
        measure,
        lambda scenario, peer: messages or scenario.messages,
    )
    results = command.new_results("benchmarks.broker")
    with command.measuring() as announce:
        if "memory" in wanted:
            memory.raise_descriptor_limit(connections)
            for peer, footprint in rounds.footprints(IDLE, chosen, connections, announce):
                results.add(peer, footprint)
        if trial.scenarios:
            for peer, run in rounds.loads(trial, chosen, rounds_, announce):
                results.add(peer, run)
    command.publish(results, _ACCOUNT, json_file, markdown_file, profile, stored=stored)


if __name__ == "__main__":
    typer.run(main)
