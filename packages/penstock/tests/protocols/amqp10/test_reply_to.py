"""Direct reply-to over AMQP 1.0: answers without a queue for them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import INVALID_FIELD
from penstock.wire.amqp10.links import ReceiverLink
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties
from penstock.wire.amqp10.performatives import ACCEPTED, RELEASED
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

REQUEST: dict[str, Any] = {
    "dynamic": True,
    "expiry_policy": "link-detach",
    "capabilities": ("rabbitmq:volatile-queue",),
    "snd": 1,
}


def address_of(link: ReceiverLink) -> str:
    assert link.remote is not None
    assert link.remote.source is not None
    return str(link.remote.source.address)


async def test_an_answer_comes_back_to_who_asked(
    peer: Peer, connect: Connect, broker: Broker
) -> None:
    link = await peer.receiver(None, credit=10, **REQUEST)
    address = address_of(link)
    assert address.startswith("/queues/amq.rabbitmq.reply-to.")
    assert broker.vhosts["/"].queues == {}
    server = await connect("server")
    relay = await server.sender(None)
    message = Amqp10Message(b"answer", properties=Amqp10Properties(to=address))
    assert await server.send(relay, message) == ACCEPTED
    [(delivery, answer)] = await peer.take()
    assert (answer.body, delivery.settled) == (b"answer", True)
    to_it = await server.sender(address)
    for number in range(20):  # more than the credit
        assert await server.send(to_it, Amqp10Message(b"%d" % number)) == ACCEPTED
    peer.grant(link, 100)
    taken = await peer.take(20)
    assert [one.body for _, one in taken] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("end", ["detach", "connection"])
async def test_an_answer_that_is_too_late_is_released(
    peer: Peer, connect: Connect, broker: Broker, end: str
) -> None:
    link = await peer.receiver(None, credit=1, **REQUEST)
    address = address_of(link)
    if end == "detach":
        link.detach()
        await peer.session()
    else:
        await peer.close()
    assert broker.vhosts["/"].replies == {}
    server = await connect("server")
    message = Amqp10Message(b"late", properties=Amqp10Properties(to=address))
    assert await server.send(await server.sender(None), message) == RELEASED


@pytest.mark.parametrize(
    "wrong",
    [
        {"dynamic": False},
        {"snd": 2},
        {"durable": 1},
        {"expiry_policy": "session-end"},
        {"filter": {"x": "y"}},
    ],
)
async def test_other_sources_are_refused(peer: Peer, wrong: dict[str, Any]) -> None:
    link = await peer.receiver(None, **{**REQUEST, **wrong})
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    assert error.condition == INVALID_FIELD
