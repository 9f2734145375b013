"""A flow's stream is declared where nobody has declared one that it reads."""

from __future__ import annotations

from contextlib import closing

from penstock.client import blocking_client
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.stream_declaration import StreamDeclaration, declare_missing_streams
from penstock_spark.streams.endpoint import find_endpoint
from tests.peers import Broker, Penstock
from tests.pipeline.given import declare


def names(url: str) -> set[str]:
    with closing(find_endpoint(parse_amqp_url(url), None).open()) as streams:
        return streams.names()


def test_what_is_published_after_it_was_declared_is_kept(broker: Broker, name: str) -> None:
    wanted = StreamDeclaration(name, "amq.topic", (f"{name}.#",))
    declare_missing_streams(broker.url, name, [wanted])
    declare_missing_streams(broker.url, name, [wanted])
    with blocking_client.connect(broker.url) as fabric:
        fabric.publish(f"{name}.one", b"kept")
        with fabric.replay(name) as kept:
            assert kept.receive(timeout=60).body == b"kept"


def test_a_pattern_is_met_by_what_is_declared(penstock: Penstock, name: str) -> None:
    declare_missing_streams(
        penstock.url, f"{name}*", [StreamDeclaration(name, "amq.topic", (f"{name}.#",))]
    )
    assert name in names(penstock.url)


def test_a_stream_that_is_read_already_is_enough(penstock: Penstock, name: str) -> None:
    declare(penstock.url, f"{name}-0")
    declare_missing_streams(
        penstock.url, f"{name}*", [StreamDeclaration(name, "amq.topic", (f"{name}.#",))]
    )
    assert name not in names(penstock.url)


def test_a_flow_that_wants_none_asks_nobody() -> None:
    declare_missing_streams("amqp://127.0.0.1:1", "any*", [])
