"""Filters of a source: those that choose among the messages of a stream, and those refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.server.broker import Broker
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED
from penstock.wire.amqp10.links import LinkEndpoint, ReceiverLink
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties
from penstock.wire.amqp10.performatives import ACCEPTED, RELEASED
from penstock.wire.amqp10.values import Described, Symbol, UInt, ULong
from tests.protocols.amqp10.conftest import Connect
from tests.protocols.amqp10.peer import Peer

OFFSET = Symbol("rabbitmq:stream-offset-spec")
FILTER = Symbol("rabbitmq:stream-filter")
UNFILTERED = Symbol("rabbitmq:stream-match-unfiltered")
PROPERTIES = Symbol("amqp:properties-filter")
APPLICATION = Symbol("amqp:application-properties-filter")
SQL = Symbol("amqp:sql-filter")
SELECTOR = Symbol("apache.org:selector-filter:string")

Filters = dict[Symbol, Any]


def described(filters: dict[Symbol, Any]) -> Filters:
    return {name: Described(name, value) for name, value in filters.items()}


async def condition_of(peer: Peer, link: LinkEndpoint) -> str:
    await peer.until(lambda: link in peer.detached)
    error = peer.detached[link]
    assert error is not None
    return error.condition


def in_force(link: ReceiverLink) -> Filters | None:
    assert link.remote is not None
    assert link.remote.source is not None
    return link.remote.source.filter


def value(text: str) -> dict[Symbol, str]:
    return {Symbol("x-stream-filter-value"): text}


FRUIT = [
    Amqp10Message(
        b"a", message_annotations=value("apple"), properties=Amqp10Properties(subject="red")
    ),
    Amqp10Message(
        b"b", message_annotations=value("banana"), properties=Amqp10Properties(subject="yellow")
    ),
    Amqp10Message(b"c", properties=Amqp10Properties(subject="&reds", group_sequence=UInt(7))),
    Amqp10Message(b"d", application_properties={"ripe": True, "weight": 1, "from": "italy"}),
    Amqp10Message(b"e", application_properties={"ripe": False, "weight": UInt(1), "from": "spain"}),
]


async def fruit(peer: Peer, broker: Broker) -> None:
    broker.vhosts["/"].declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    out = await peer.sender("/stream/s")
    for message in FRUIT:
        assert await peer.send(out, message) == ACCEPTED


async def drained(peer: Peer, link: ReceiverLink) -> list[object]:
    """The bodies of all that there is."""
    peer.grant(link, 1000, drain=True)
    await peer.until(lambda: link.credit == 0)
    return [message.body for message in await peer.receive(len(peer.received))]


@pytest.mark.parametrize(
    ("wanted", "bodies"),
    [
        ({FILTER: "apple"}, [b"a"]),
        ({FILTER: ["apple", "banana"]}, [b"a", b"b"]),
        ({FILTER: "apple", UNFILTERED: True}, [b"a", b"c", b"d", b"e"]),
        ({UNFILTERED: False}, [b"a", b"b", b"c", b"d", b"e"]),
        ({PROPERTIES: {Symbol("subject"): "red"}}, [b"a"]),
        ({PROPERTIES: {Symbol("subject"): "&s:ed"}}, [b"a"]),
        ({PROPERTIES: {Symbol("subject"): "&p:y"}}, [b"b"]),
        ({PROPERTIES: {Symbol("subject"): "&&reds"}}, [b"c"]),
        ({PROPERTIES: {Symbol("group-sequence"): ULong(7)}}, [b"c"]),
        ({APPLICATION: {"ripe": True}}, [b"d"]),
        ({APPLICATION: {"weight": 1}}, [b"d", b"e"]),
        ({APPLICATION: {"weight": 1, "from": "&p:sp"}}, [b"e"]),
        ({FILTER: "banana", PROPERTIES: {Symbol("subject"): "red"}}, []),
        ({SQL: "p.subject LIKE '%red%' OR weight = 1 AND NOT ripe"}, [b"a", b"c", b"e"]),
        ({SQL: "header.priority = 4 AND properties.group_sequence > 6"}, [b"c"]),
        ({SQL: "weight = 1", FILTER: "apple"}, []),
    ],
)
async def test_a_stream_is_filtered(
    peer: Peer, broker: Broker, wanted: dict[Symbol, Any], bodies: list[bytes]
) -> None:
    await fruit(peer, broker)
    filters = described({OFFSET: "first"} | wanted)

    link = await peer.receiver("/stream/s", filter=filters)

    assert in_force(link) == filters
    assert await drained(peer, link) == bodies


async def test_what_is_wanted_is_found_far_down_the_stream(peer: Peer, broker: Broker) -> None:
    await fruit(peer, broker)
    out = await peer.sender("/stream/s")
    for _ in range(500):
        peer.post(out, Amqp10Message(b"other"), settled=True)
    assert await peer.send(out, FRUIT[0]) == ACCEPTED

    link = await peer.receiver("/stream/s", filter=described({OFFSET: ULong(1), FILTER: "apple"}))

    assert await drained(peer, link) == [b"a"]


async def test_large_messages_are_filtered_too(peer: Peer, broker: Broker) -> None:
    await fruit(peer, broker)
    out = await peer.sender("/stream/s")
    for text in ("apple", "banana"):
        large = Amqp10Message(text.encode() * 10_000, message_annotations=value(text))
        assert await peer.send(out, large) == ACCEPTED

    await peer.receiver(
        "/stream/s", credit=10, filter=described({OFFSET: "first", FILTER: "banana"})
    )

    assert [message.body for message in await peer.receive(2)] == [b"b", b"banana" * 10_000]


async def test_what_comes_later_is_filtered_as_well(peer: Peer, broker: Broker) -> None:
    await fruit(peer, broker)
    await peer.receiver("/stream/s", credit=1, filter=described({FILTER: "banana"}))
    out = await peer.sender("/stream/s")

    for message in FRUIT:
        await peer.send(out, message)

    assert [message.body for message in await peer.receive()] == [b"b"]


@pytest.mark.parametrize(
    "wanted",
    [
        {FILTER: 7},
        {FILTER: []},
        {FILTER: ["a", 1]},
        {UNFILTERED: "yes"},
        {PROPERTIES: "subject"},
        {PROPERTIES: {Symbol("colour"): "red"}},
        {PROPERTIES: {Symbol("subject"): "&x:red"}},
        {APPLICATION: {"ripe": None}},
        {APPLICATION: {"ripe": [True]}},
        {SQL: 5},
        {SQL: "weight ="},
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    peer: Peer, broker: Broker, wanted: dict[Symbol, Any]
) -> None:
    await fruit(peer, broker)

    link = await peer.receiver("/stream/s", filter=described(wanted))

    assert await condition_of(peer, link) == INVALID_FIELD


@pytest.mark.parametrize("address", ["/queue/new", "old", "/exchange/amq.topic/#", "/stream/s"])
async def test_a_selector_is_refused_and_nothing_is_made_for_it(
    peer: Peer, broker: Broker, address: str
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("old")
    vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})

    link = await peer.receiver(address, filter=described({SELECTOR: "colour = 'red'"}))

    assert await condition_of(peer, link) == NOT_IMPLEMENTED
    assert set(vhost.queues) == {"old", "s"}


async def test_a_dynamic_node_has_no_filters(peer: Peer, broker: Broker) -> None:
    link = await peer.receiver(None, dynamic=True, filter=described({SELECTOR: "a = 1"}))

    assert await condition_of(peer, link) == NOT_IMPLEMENTED
    assert not broker.vhosts["/"].queues


@pytest.mark.parametrize("address", ["$management", "$cbs"])
async def test_a_node_of_other_brokers_is_not_found_and_no_queue_is_made(
    peer: Peer, broker: Broker, address: str
) -> None:
    assert await condition_of(peer, await peer.sender(address)) == NOT_FOUND
    assert await condition_of(peer, await peer.receiver(address)) == NOT_FOUND
    assert not broker.vhosts["/"].queues


async def test_only_the_first_link_that_acquires_a_message_is_told_so(
    peer: Peer, connect: Connect, broker: Broker
) -> None:
    broker.vhosts["/"].declare_queue("q")
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    await peer.receiver("/queue/q", credit=1)
    [(delivery, message)] = await peer.take()
    assert message.header is not None
    assert (message.header.first_acquirer, message.header.delivery_count) == (True, 0)

    peer.settle(delivery, RELEASED)
    other = await connect("other")
    await other.receiver("/queue/q", credit=1)

    [(_, again)] = await other.take()
    assert again.header is not None
    assert (again.header.first_acquirer, again.header.delivery_count) == (False, 0)
