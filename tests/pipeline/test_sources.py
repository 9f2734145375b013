"""A flow's stream is declared where nobody has declared one that it reads."""

from __future__ import annotations

from contextlib import closing

from penstock.client import blocking
from penstock.pipeline.brokers.opening import find_door
from penstock.pipeline.sources import Wanted, ensure
from penstock.wire.amqp091.address import parse_address
from tests.peers import Broker, Penstock
from tests.pipeline.given import declare


def names(url: str) -> set[str]:
    with closing(find_door(parse_address(url), None).open()) as streams:
        return streams.names()


def test_what_is_published_after_it_was_declared_is_kept(broker: Broker, name: str) -> None:
    wanted = Wanted(name, "amq.topic", (f"{name}.#",))
    ensure(broker.url, name, [wanted])
    ensure(broker.url, name, [wanted])
    with blocking.connect(broker.url) as fabric:
        fabric.publish(f"{name}.one", b"kept")
        with fabric.replay(name) as kept:
            assert kept.receive(timeout=60).body == b"kept"


def test_a_pattern_is_met_by_what_is_declared(penstock: Penstock, name: str) -> None:
    ensure(penstock.url, f"{name}*", [Wanted(name, "amq.topic", (f"{name}.#",))])
    assert name in names(penstock.url)


def test_a_stream_that_is_read_already_is_enough(penstock: Penstock, name: str) -> None:
    declare(penstock.url, f"{name}-0")
    ensure(penstock.url, f"{name}*", [Wanted(name, "amq.topic", (f"{name}.#",))])
    assert name not in names(penstock.url)


def test_a_flow_that_wants_none_asks_nobody() -> None:
    ensure("amqp://127.0.0.1:1", "any*", [])
