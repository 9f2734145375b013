"""Requests to the management node, as a client of AMQP 1.0 sends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.broker.permissions import Permission
from penstock.core.config import BrokerSettings
from penstock.server.broker import Broker
from penstock.wire.amqp10.links import ReceiverLink, SenderLink
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties, AmqpValue
from penstock.wire.amqp10.values import UInt
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

NODE = "/management"


class Node:
    """The pair of links of one client."""

    def __init__(self, peer: Peer, requests: SenderLink, responses: ReceiverLink) -> None:
        self._peer = peer
        self._requests = requests
        self.responses = responses
        self._number = 0

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self._number += 1
        properties = Amqp10Properties(
            message_id=str(self._number), to=path, subject=method, reply_to="$me"
        )
        await self._peer.until(lambda: self._requests.credit > 0)
        self._peer.post(self._requests, Amqp10Message(AmqpValue(body), properties=properties))
        [response] = await self._peer.receive()
        assert response.properties is not None
        assert response.properties.correlation_id == str(self._number)
        assert isinstance(response.body, AmqpValue)
        return int(response.properties.subject or 0), response.body.value


async def node_of(peer: Peer, name: str = "pair") -> Node:
    requests = await peer.sender(NODE, name=name)
    responses = await peer.receiver(NODE, name=name, credit=100)
    return Node(peer, requests, responses)


async def test_queues(peer: Peer) -> None:
    node = await node_of(peer)
    limited = {"durable": True, "arguments": {"x-max-length": UInt(5), "x-queue-type": "quorum"}}
    status, described = await node.ask("PUT", "/queues/or%2Fders", limited)
    assert status == 201
    assert described["name"] == "or/ders"
    assert described["type"] == "quorum"
    assert (await node.ask("PUT", "/queues/or%2Fders", limited))[0] == 200
    status, reason = await node.ask("PUT", "/queues/or%2Fders", {"durable": True})
    assert (status, "inequivalent arg" in reason) == (409, True)
    assert (await node.ask("GET", "/queues/or%2Fders"))[1]["message_count"] == 0
    assert await node.ask("DELETE", "/queues/or%2Fders/messages") == (200, {"message_count": 0})
    assert await node.ask("DELETE", "/queues/or%2Fders") == (200, {"message_count": 0})
    assert (await node.ask("GET", "/queues/or%2Fders"))[0] == 404
    assert (await node.ask("DELETE", "/queues/or%2Fders"))[0] == 404


async def test_exchanges_and_bindings(peer: Peer, broker: Broker) -> None:
    node = await node_of(peer)
    assert (await node.ask("PUT", "/exchanges/news", {"type": "topic"}))[0] == 204
    assert (await node.ask("PUT", "/queues/q", {}))[0] == 201
    bind = {"source": "news", "destination_queue": "q", "binding_key": "a.;=/#", "arguments": {}}
    assert (await node.ask("POST", "/bindings", bind))[0] == 204
    other = {**bind, "arguments": {"k": 1}}
    assert (await node.ask("POST", "/bindings", other))[0] == 204
    status, found = await node.ask("GET", "/bindings?src=news&dstq=q&key=a.%3B%3D%2F%23")
    assert status == 200
    assert [each["binding_key"] for each in found] == ["a.;=/#"] * 2
    assert len({each["location"] for each in found}) == 2
    for each in found:
        assert (await node.ask("DELETE", each["location"]))[0] == 204
    assert list(broker.vhosts["/"].bindings()) == []
    to_exchange = {"source": "news", "destination_exchange": "amq.fanout", "binding_key": "x"}
    assert (await node.ask("POST", "/bindings", to_exchange))[0] == 204
    path = "/bindings/src=news;dste=amq.fanout;key=x;args="
    assert (await node.ask("DELETE", path))[0] == 204
    assert list(broker.vhosts["/"].bindings()) == []
    assert (await node.ask("DELETE", "/exchanges/news"))[0] == 204
    assert (await node.ask("DELETE", "/exchanges/news"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PUT", "/queues/q", {"durable": "yes"}, 409),
        ("PUT", "/queues/q", {"arguments": {"x-max-length": -1}}, 409),
        ("PUT", "/exchanges/e", {"type": "none"}, 400),
        ("PUT", "/exchanges/amq.direct", {"type": "fanout"}, 409),
        ("POST", "/bindings", {"source": "none", "destination_queue": "none"}, 404),
        ("POST", "/bindings", None, 403),
        ("GET", "/nothing", None, 404),
        ("", "", None, 404),
        ("PUT", "/auth/tokens", "not binary", 409),
    ],
)
async def test_a_bad_request_is_answered(
    peer: Peer, method: str, path: str, body: Any, expected: int
) -> None:
    node = await node_of(peer)
    status, reason = await node.ask(method, path, body)
    assert (status, bool(reason)) == (expected, True)
    assert (await node.ask("PUT", "/queues/after", {}))[0] == 201  # the links go on


async def test_permissions_apply(tmp_path: Path) -> None:
    async with Broker(BrokerSettings(listen=["amqp://127.0.0.1:0"]), data=tmp_path) as broker:
        broker.users.add("ada", "ada")
        broker.users.set_permissions("ada", "/", Permission("^ada", "^ada", "^ada"))
        broker.vhosts["/"].declare_queue("others")
        port = urlsplit(broker.addresses[0]).port or 0
        peer = await Peer().connect(port, user="ada", password="ada")
        node = await node_of(peer)
        assert (await node.ask("PUT", "/queues/ada.q", {}))[0] == 201
        for method, path, body in (
            ("PUT", "/queues/x", {}),
            ("DELETE", "/queues/others", None),
            ("DELETE", "/queues/others/messages", None),
            ("PUT", "/exchanges/x", {}),
            ("DELETE", "/exchanges/amq.direct", None),
            ("POST", "/bindings", {"source": "amq.direct", "destination_queue": "ada.q"}),
            ("POST", "/bindings", {"source": "ada.x", "destination_queue": "others"}),
            ("GET", "/bindings?src=amq.direct&dstq=ada.q", None),
        ):
            assert (await node.ask(method, path, body))[0] == 403, (method, path)
        await peer.hang_up()


async def test_a_request_without_a_link_for_the_response_ends_the_link(peer: Peer) -> None:
    requests = await peer.sender(NODE, name="alone")
    peer.post(requests, Amqp10Message(AmqpValue({}), properties=Amqp10Properties(subject="GET")))
    await peer.until(lambda: requests in peer.detached)
    error = peer.detached[requests]
    assert error is not None
    assert error.condition == "amqp:precondition-failed"


async def test_responses_wait_for_credit(connect: Connect) -> None:
    peer = await connect()
    requests = await peer.sender(NODE, name="pair")
    responses = await peer.receiver(NODE, name="pair", credit=0)
    for number in range(5):
        properties = Amqp10Properties(to=f"/queues/q{number}", subject="PUT")
        peer.post(requests, Amqp10Message(AmqpValue({}), properties=properties))
    await peer.session()
    assert peer.received == []
    peer.grant(responses, 5)
    assert len(await peer.receive(5)) == 5


async def test_the_broker_can_present_itself_as_rabbitmq(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], rabbitmq_version="4.3.0")
    async with Broker(settings, data=tmp_path) as broker:
        peer = await Peer().connect(urlsplit(broker.addresses[0]).port or 0)
        assert peer.remote is not None
        properties = peer.remote.properties or {}
        assert (properties["product"], properties["version"]) == ("RabbitMQ", "4.3.0")
        await peer.hang_up()
