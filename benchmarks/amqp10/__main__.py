"""`python -m benchmarks.amqp10`: Penstock and RabbitMQ's plugin under the same load."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from benchmarks.amqp10.load import measure
from benchmarks.amqp10.scenarios import SCENARIOS
from benchmarks.harness import command, rounds
from benchmarks.harness.report import Account
from benchmarks.peers import AMQP10_STARTERS, Starter, start_penstock

_ACCOUNT: Final = Account(
    "AMQP 1.0's benchmarks",
    "Each figure is the median of several rounds. The brokers alternate in each round. Brokers "
    "and generator run on the same machine and use loopback. The generator writes prebuilt "
    "transfers, 100 per write unless a scenario states otherwise. It stays at most 20,000 "
    "messages ahead of the receiver, and within the credit and the session window of the broker. "
    "It checks count, order and body of every delivery. Each run has its own durable queue "
    "(`/queue/NAME`), which the link creates. Rates and CPU seconds are per message. CPU time is "
    "the user and system time of all processes of the broker. RabbitMQ 3 runs its AMQP 1.0 "
    "plugin, which converts to 0-9-1 internally; RabbitMQ 4 is permitted to use the addresses of "
    "version 3. A ratio is the first broker's figure divided by the other's.",
    {name: scenario.title for name, scenario in SCENARIOS.items()},
)


def main(
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(SCENARIOS)}; or all.")
    ] = "all",
    peers: command.Peers = command.PRESENT,
    rounds_: command.Rounds = 3,
    messages: command.Messages = 0,
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
    profile: command.Profile = None,
    stored: command.Store = False,
) -> None:
    """Measure AMQP 1.0: rate, CPU, latency; and check every message that arrives."""
    wanted = command.names(scenario, list(SCENARIOS), "--scenario")
    starters: dict[str, Starter] = {**AMQP10_STARTERS}
    starters["penstock"] = partial(start_penstock, profile=profile)
    chosen = command.chosen_peers(peers, starters)
    if quick:
        rounds_, messages = 1, messages or command.QUICK_MESSAGES
    trial = rounds.Trial(
        [SCENARIOS[name] for name in wanted],
        measure,
        lambda scenario, peer: messages or scenario.messages,
    )
    results = command.new_results("benchmarks.amqp10")
    with command.measuring() as announce:
        for peer, run in rounds.loads(trial, chosen, rounds_, announce):
            results.add(peer, run)
    command.publish(results, _ACCOUNT, json_file, markdown_file, profile, stored=stored)


if __name__ == "__main__":
    typer.run(main)
