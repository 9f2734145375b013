"""Every scenario runs against every broker that is there, and what arrives is right.

Those whom we are measured beside take long to run through all: of the quick tests they have a few.
Nothing is said about time: a figure from so few messages on a busy machine means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.harness import memory, rounds
from benchmarks.harness.memory import Idleness
from benchmarks.mqtt.load import measure
from benchmarks.mqtt.memory import IDLE, SUBSCRIBED
from benchmarks.mqtt.packets import V5
from benchmarks.mqtt.scenarios import MOST_CONNECTIONS, SCENARIOS, Scenario
from benchmarks.peers import MQTT_STARTERS, NEWER_PEERS, Peer, available

PEERS = [name for name in MQTT_STARTERS if name not in NEWER_PEERS]
#: No multiple of a batch: the last write is a short one.
MESSAGES = {"penstock": 2_345, "mosquitto": 2_345, "amqtt": 123}
FANNED_OUT = 234
CONNECTIONS = 150
#: One of each kind.
QUICK = ("q0", "q1-single", "fan-q1", "fleet-q0-10")
#: amqtt speaks 3.1.1 only.
RUNS = [
    pytest.param(
        peer,
        scenario,
        id=f"{peer}-{name}",
        marks=[] if peer == "penstock" or name in QUICK else pytest.mark.slow,
    )
    for peer in PEERS
    for name, scenario in SCENARIOS.items()
    if peer != "amqtt" or scenario.layout.version != V5
]


@pytest.fixture(scope="module", params=PEERS)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    name = request.param
    if not available(name) and os.environ.get("CI") != "true":
        pytest.skip(f"{name} is not installed here")
    memory.raise_descriptor_limit(MOST_CONNECTIONS)
    with rounds.running(MQTT_STARTERS[name]) as running:
        yield running


@pytest.mark.peer
@pytest.mark.parametrize(("peer", "scenario"), RUNS, indirect=["peer"], scope="module")
def test_all_messages_arrive_in_order_and_unaltered(peer: Peer, scenario: Scenario) -> None:
    messages = MESSAGES[peer.name]
    if scenario.subscribers > 1:
        messages = min(messages, FANNED_OUT)
    reached: list[int] = []

    run = measure(scenario, peer, messages, reached.append)

    assert (run.scenario, run.peer, run.messages) == (scenario.name, peer.name, messages)
    assert run.deliveries == messages * scenario.subscribers
    assert 0 < run.latency_p50 <= run.latency_p99 <= run.wall_seconds
    assert run.rss_bytes > 0


@pytest.mark.peer
@pytest.mark.parametrize("idleness", [IDLE, SUBSCRIBED], ids=lambda idleness: idleness.title)
def test_idle_connections_are_counted(idleness: Idleness, peer: Peer) -> None:
    footprint = memory.footprint(peer, idleness, CONNECTIONS, lambda opened: None)

    assert footprint.connections == CONNECTIONS
    assert footprint.connected_bytes > 0
