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
    "Medians over rounds in which the brokers take turns; brokers and generator share the machine"
    " and speak over loopback. The generator writes prebuilt packets and, where a scenario does "
    "not say otherwise, speaks MQTT 3.1.1, writes 100 messages at a time and is at most 20,000 "
    "ahead of the slowest subscriber. It checks every octet that arrives: count, each publisher's"
    " order, content; at QoS 1 also that each message is answered in its order. A subscriber of "
    "QoS 1 answers each message, all of one read in one write. Sessions end with their "
    "connections, so nothing is kept on disk. Rates and CPU seconds are per message published, "
    "and where there is more than one subscriber also per message delivered; CPU time is user and"
    " system time of the broker's process. Latency runs from before a write to the arrival of its"
    " last message, so it is mostly the wait behind the window; of many publishers it is a figure"
    " for all together. The generator's own CPU shows how far it is from being the limit itself. "
    "RSS is read at the end of a run. A ratio is the first broker's figure over the other's.\n\n"
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
    peers: command.Peers = "penstock,mosquitto,amqtt",
    rounds_: command.Rounds = 3,
    messages: command.Messages = 0,
    connections: command.Connections = memory.CONNECTIONS,
    quick: command.Quick = False,
    json_file: command.Json = None,
    markdown_file: command.Markdown = None,
    profile: command.Profile = None,
) -> None:
    """Measure MQTT brokers: rate, CPU, latency, memory; and check every message that arrives."""
    wanted = command.names(scenario, _CHOICES, "--scenario")
    starters: dict[str, Starter] = {**MQTT_STARTERS}
    starters["penstock"] = partial(start_penstock, profile=profile, scheme="mqtt")
    chosen = [starters[name] for name in command.names(peers, list(starters), "--peers")]
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
    command.publish(results, _ACCOUNT, json_file, markdown_file, profile)


def _messages(scenario: Scenario, peer: Peer, wanted: int) -> int:
    if peer.name != "amqtt":
        return wanted
    if scenario.layout.version == V5:
        return 0
    return min(wanted, max(wanted // _AMQTT_FRACTION, _AMQTT_LEAST))


if __name__ == "__main__":
    typer.run(main)
