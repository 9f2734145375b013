"""`python -m benchmarks.mqtt`: Penstock, mosquitto and amqtt under the same load, side by side."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import typer

from benchmarks.harness import command, memory, rounds
from benchmarks.harness.report import Account
from benchmarks.mqtt.load import measure
from benchmarks.mqtt.memory import IDLE, SUBSCRIBED
from benchmarks.mqtt.packets import V5
from benchmarks.mqtt.scenarios import MOST_CONNECTIONS, SCENARIOS, Scenario
from benchmarks.peers import MQTT_STARTERS, Peer, Starter, start_penstock

_CHOICES: Final = [*SCENARIOS, "memory"]
#: amqtt takes so much longer for a message that it gets fewer, but not too few to measure.
_AMQTT_FRACTION: Final = 50
_AMQTT_LEAST: Final = 500

_ACCOUNT: Final = Account(
    "MQTT's benchmarks",
    "Each figure is the median of several rounds. The brokers alternate in each round. Brokers "
    "and generator run on the same machine and use loopback. The generator writes prebuilt "
    "packets. Unless a scenario states otherwise it uses MQTT 3.1.1, writes 100 messages at a "
    "time and stays at most 20,000 messages ahead of the slowest subscriber. It checks count, "
    "order per publisher and content of everything that arrives, and the order of "
    "acknowledgements at QoS 1. A QoS 1 subscriber acknowledges all messages of one read in one "
    "write. Sessions end with their connections, so nothing is stored on disk. Rates and CPU "
    "seconds are per published message and, with several subscribers, also per delivered message. "
    "CPU time is the user and system time of the broker's process. Latency is measured from a "
    "write to the arrival of its last message, so it is mostly the time in the window; with many "
    "publishers it is one figure for all of them. The generator's CPU time shows that it is not "
    "the limit. RSS is read at the end of a run. A ratio is the first broker's figure divided by "
    "the other's.\n\n"
    "Penstock runs with its defaults. mosquitto has `max_inflight_messages 0`, "
    "`max_queued_messages 0` (no limits: by default 20 and 1,000 a client), "
    "`set_tcp_nodelay true`, `persistence false`, and lets anyone in. amqtt has the configuration "
    "it comes with, without the plugin for $SYS; it speaks 3.1.1 only, and gets a fiftieth of the "
    "messages.",
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
    """Measure MQTT brokers: rate, CPU, latency, memory; and check every message that arrives."""
    wanted = command.names(scenario, _CHOICES, "--scenario")
    starters: dict[str, Starter] = {**MQTT_STARTERS}
    starters["penstock"] = partial(start_penstock, profile=profile, scheme="mqtt")
    chosen = command.chosen_peers(peers, starters)
    if quick:
        rounds_, messages = 1, messages or command.QUICK_MESSAGES
        connections = min(connections, command.QUICK_CONNECTIONS)
    trial = rounds.Trial(
        [SCENARIOS[name] for name in wanted if name in SCENARIOS],
        measure,
        lambda scenario, peer: _messages(scenario, peer, messages or scenario.messages),
    )
    memory.raise_descriptor_limit(max(connections, MOST_CONNECTIONS))
    results = command.new_results("benchmarks.mqtt")
    with command.measuring() as announce:
        if "memory" in wanted:
            for idleness in (IDLE, SUBSCRIBED):
                for peer, footprint in rounds.footprints(idleness, chosen, connections, announce):
                    results.add(peer, footprint)
        if trial.scenarios:
            for peer, run in rounds.loads(trial, chosen, rounds_, announce):
                results.add(peer, run)
    command.publish(results, _ACCOUNT, json_file, markdown_file, profile, stored=stored)


def _messages(scenario: Scenario, peer: Peer, wanted: int) -> int:
    if peer.name != "amqtt":
        return wanted
    if scenario.layout.version == V5:
        return 0
    return min(wanted, max(wanted // _AMQTT_FRACTION, _AMQTT_LEAST))


if __name__ == "__main__":
    typer.run(main)
