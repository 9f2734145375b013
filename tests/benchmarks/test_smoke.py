"""Every scenario runs against every broker that is there, and what arrives is right.

Nothing is said about time: a figure from so few messages on a busy machine means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.broker.load import measure
from benchmarks.broker.memory import IDLE
from benchmarks.broker.scenarios import SCENARIOS, Scenario
from benchmarks.harness import memory, rounds
from benchmarks.peers import AMQP_STARTERS, NEWER_PEERS, Peer, available

#: No multiple of a batch: the last write and the last acknowledgement are short ones.
MESSAGES = 2_345
CONNECTIONS = 150


@pytest.fixture(scope="module", params=[name for name in AMQP_STARTERS if name not in NEWER_PEERS])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    name = request.param
    if not available(name) and os.environ.get("CI") != "true":
        pytest.skip(f"{name} is not installed here")
    with rounds.running(AMQP_STARTERS[name]) as running:
        yield running


@pytest.mark.peer
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_all_messages_arrive_in_order_and_unaltered(scenario: Scenario, peer: Peer) -> None:
    reached: list[int] = []

    run = measure(scenario, peer, MESSAGES, reached.append)

    assert (run.scenario, run.peer, run.messages) == (scenario.name, peer.name, MESSAGES)
    assert 0 < run.latency_p50 <= run.latency_p99 <= run.wall_seconds
    assert run.rss_bytes > 0


@pytest.mark.peer
def test_idle_connections_are_counted(peer: Peer) -> None:
    footprint = memory.footprint(peer, IDLE, CONNECTIONS, lambda opened: None)

    assert footprint.connections == CONNECTIONS
    assert footprint.connected_bytes > 0
