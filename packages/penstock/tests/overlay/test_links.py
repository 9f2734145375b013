"""Links between real brokers in one process: how they come to be, what they carry, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.core.config import OverlaySettings
from penstock.server import Broker
from penstock.wire.padres.envelope import EnvelopeKind
from penstock.wire.padres.frames import PROTOCOL_HEADER
from tests.overlay.conversation import PATIENCE
from tests.overlay.house import House, becomes, holds, pair, port_of, router_of, up, uri_of
from tests.peers import free_port

STOCK = "[class,eq,stock],[price,>,0]"
CHEAP = "[class,eq,stock],[price,<,50]"
AT_45 = "[class,stock],[price,45]"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(tmp_path, stack)


# How they come to be.


async def test_naming_a_link_at_one_end_is_enough(house: House) -> None:
    first, second = await pair(house)
    publisher, subscriber = await house.talker(first, "p"), await house.talker(second, "s")
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    await publisher.say(EnvelopeKind.PUBLISH, "[class,stock],[price,61]")
    await publisher.say(EnvelopeKind.PUBLISH, AT_45, payload=b"x")
    [got] = await subscriber.until(1)
    assert (got.text, got.payload, got.source) == (AT_45, b"x", "B1-p")


async def test_who_is_named_may_start_later(house: House) -> None:
    port = free_port()
    second = await house.broker("B2", f"padres://127.0.0.1:{port}/B1")
    first = await house.broker("B1", port=port)
    await becomes(lambda: up(first, "B2") and up(second, "B1"))


async def test_both_may_name_each_other_and_there_is_one_link(house: House) -> None:
    ports = free_port(), free_port()
    first = await house.broker("B1", f"padres://127.0.0.1:{ports[1]}/B2", port=ports[0])
    second = await house.broker("B2", f"padres://127.0.0.1:{ports[0]}/B1", port=ports[1])
    await becomes(lambda: up(first, "B2") and up(second, "B1"))
    publisher, subscriber = await house.talker(first, "p"), await house.talker(second, "s")
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    for _ in range(5):
        await publisher.say(EnvelopeKind.PUBLISH, AT_45)
    await publisher.say(EnvelopeKind.PUBLISH, "[class,stock],[price,1]")
    got = await subscriber.until(6)
    assert [one.text for one in got] == [AT_45] * 5 + ["[class,stock],[price,1]"]


async def test_a_broker_can_be_told_to_connect_and_to_part(house: House) -> None:
    first, second = await house.broker("B1"), await house.broker("B2")
    operator = await house.talker(first, "operator")
    await operator.say(
        EnvelopeKind.ADVERTISE,
        "[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x],"
        "[broker,isPresent,x]",
    )
    order = "[class,BROKER_CONTROL],[brokerID,B1],[command,OVERLAY-{}],[broker,'{}']"
    await operator.say(EnvelopeKind.PUBLISH, order.format("CONNECT", uri_of(second)))
    await becomes(lambda: up(first, "B2") and up(second, "B1"))
    await operator.say(EnvelopeKind.PUBLISH, order.format("DISCONNECT", "B2"))
    await becomes(lambda: not router_of(first).neighbours and not router_of(second).neighbours)
    assert "overlay.B2" not in first.vhosts["/"].queues


async def test_a_broker_can_be_told_to_shut_down_from_another(house: House) -> None:
    first, second = await pair(house)
    operator = await house.talker(first, "operator")
    await operator.say(
        EnvelopeKind.ADVERTISE,
        "[class,eq,BROKER_CONTROL],[brokerID,isPresent,x],[command,isPresent,x]",
    )
    order = '[class,eq,BROKER_CONTROL],[brokerID,eq,"B2"]'
    await becomes(lambda: holds(first, "B2", order))
    assert not house.told_to_stop.is_set()
    await operator.say(
        EnvelopeKind.PUBLISH, "[class,BROKER_CONTROL],[brokerID,B2],[command,LIFECYCLE-SHUTDOWN]"
    )
    await asyncio.wait_for(house.told_to_stop.wait(), PATIENCE)
    assert up(second, "B1")  # it is for whoever started it to end it


# What cannot be.


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("padres://", "is not a broker address"),
        ("http://127.0.0.1:1/B9", "is not a broker address"),
        ("padres://127.0.0.1:99999/B9", "is not a broker address"),
        ("padres://127.0.0.1:5680", "no valid broker id"),
        ("padres://127.0.0.1:5680/B-9", "no valid broker id"),
        ("padres://127.0.0.1:1/B1", "is this broker"),
    ],
)
async def test_an_address_that_cannot_be_is_said_and_the_broker_runs_on(
    house: House, address: str, why: str
) -> None:
    broker = await house.broker("B1")
    broker.overlay.connect(address)
    assert why in broker.overlay.links.refused[address]
    await house.talker(broker, "c")


async def refusal(dialler: Broker, address: str) -> str:
    """Why a link is refused for good."""
    refused = dialler.overlay.links.refused
    dialler.overlay.connect(address)
    await becomes(lambda: address in refused)
    return refused[address]


async def test_a_broker_that_is_another_than_was_meant_is_refused(house: House) -> None:
    first, second = await house.broker("B1"), await house.broker("B2")
    reason = await refusal(first, f"padres://127.0.0.1:{port_of(second)}/B3")
    assert reason == "this is broker B2, not B3"
    assert not router_of(first).neighbours
    assert not router_of(second).neighbours


async def test_two_brokers_of_one_name_are_refused(house: House, tmp_path: Path) -> None:
    first = await house.broker("B1")
    second = House(tmp_path / "other", house._stack)
    twin = await second.broker("B1")
    assert "is this broker" in await refusal(first, f"padres://127.0.0.1:{port_of(twin)}/B1")


async def test_a_broker_of_another_version_is_refused(house: House) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PROTOCOL_HEADER[:-1] + b"\x63")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        broker = await house.broker("B1")
        assert "version 99" in await refusal(broker, f"padres://127.0.0.1:{port}/B2")


async def test_one_who_is_not_there_is_given_up_after_so_many_tries(house: House) -> None:
    broker = await house.broker("B1")
    broker.overlay.links._settings = OverlaySettings(
        id="B1", retry_limit=3, retry_pause=0.01, user="links"
    )
    why = await refusal(broker, f"padres://127.0.0.1:{free_port()}/B2")
    assert why == "gave up after 3 attempts"


async def test_a_cycle_that_was_not_allowed_is_refused_and_nothing_comes_twice(
    house: House,
) -> None:
    first = await house.broker("B1")
    second = await house.broker("B2", uri_of(first))
    third = await house.broker("B3", uri_of(second))
    await becomes(lambda: up(first, "B2") and up(second, "B1", "B3") and up(third, "B2"))
    await becomes(lambda: len(router_of(first).tables.advertisements) == 12)
    assert "overlay.cycles" in await refusal(third, uri_of(first))
    await becomes(lambda: up(first, "B2") and up(third, "B2"))
    publisher, subscriber = await house.talker(first, "p"), await house.talker(third, "s")
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    await publisher.say(EnvelopeKind.PUBLISH, AT_45)
    await publisher.say(EnvelopeKind.PUBLISH, "[class,stock],[price,1]")
    assert [one.text for one in await subscriber.until(2)] == [AT_45, "[class,stock],[price,1]"]


async def test_brokers_that_route_by_different_rules_are_not_linked(house: House) -> None:
    first = await house.broker("B1")
    second = await house.broker("B2", cycles="FIXED")
    why = await refusal(second, uri_of(first))
    assert "cycles OFF" in why
    assert "cycles FIXED" in why
    assert not router_of(first).neighbours


async def test_brokers_that_may_form_a_cycle_do(house: House) -> None:
    first = await house.broker("B1", cycles="FIXED")
    second = await house.broker("B2", uri_of(first), cycles="FIXED")
    third = await house.broker("B3", uri_of(second), uri_of(first), cycles="FIXED")
    await becomes(
        lambda: up(first, "B2", "B3") and up(second, "B1", "B3") and up(third, "B1", "B2")
    )
    publisher = await house.talker(first, "p")
    subscribers = [await house.talker(one, "s") for one in (first, second, third)]
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    for one in subscribers:
        await one.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP) and holds(first, "B3", CHEAP))
    for price in range(10):
        await publisher.say(EnvelopeKind.PUBLISH, f"[class,stock],[price,{price + 1}]")
    for one in subscribers:
        got = await one.until(10)
        assert [each.text for each in got] == [f"[class,stock],[price,{n + 1}]" for n in range(10)]


# How they end, and begin again.


async def test_what_is_published_while_a_neighbour_is_away_waits_for_it(house: House) -> None:
    first, second = await pair(house)
    publisher = await house.talker(first, "p")
    subscriber = await house.talker(second, "s", durable=True)
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    await house.close(second)
    await publisher.say(EnvelopeKind.PUBLISH, AT_45)
    second = await house.again(second)
    subscriber = await house.talker(second, "s", durable=True)
    assert [one.text for one in await subscriber.until(1)] == [AT_45]


async def test_a_broker_that_returns_knows_what_was_asked_of_it(house: House) -> None:
    """All three at once are away: nobody is there to tell another what it held."""
    first = await house.broker("B1")
    second = await house.broker("B2", uri_of(first))
    third = await house.broker("B3", uri_of(second))
    publisher = await house.talker(first, "p", durable=True)
    subscriber = await house.talker(third, "s", durable=True)
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    for broker in (first, second, third):
        await house.close(broker)
    first = await house.again(first)
    publisher = await house.talker(first, "p", durable=True)
    await publisher.say(EnvelopeKind.PUBLISH, AT_45)  # it is safe, though nobody else is there
    second = await house.again(second)
    await becomes(lambda: up(first, "B2"))
    third = await house.again(third)
    subscriber = await house.talker(third, "s", durable=True)
    assert [one.text for one in await subscriber.until(1)] == [AT_45]


async def test_what_was_undone_while_a_neighbour_was_away_is_forgotten_there(
    house: House,
) -> None:
    first, second = await pair(house)
    publisher = await house.talker(first, "p", durable=True)
    subscriber = await house.talker(second, "s")
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    await house.close(first)
    await subscriber.close()
    await becomes(lambda: not holds(second, "B2-s", CHEAP))
    first = await house.again(first)
    await becomes(lambda: not holds(first, "B2", CHEAP))


async def test_a_stopped_broker_keeps_publications_until_it_is_resumed(house: House) -> None:
    first, second = await pair(house)
    publisher, subscriber = await house.talker(first, "p"), await house.talker(second, "s")
    await publisher.say(EnvelopeKind.ADVERTISE, STOCK)
    await subscriber.say(EnvelopeKind.SUBSCRIBE, CHEAP)
    await becomes(lambda: holds(first, "B2", CHEAP))
    router_of(first).next_hops.stop()
    await publisher.say(EnvelopeKind.PUBLISH, AT_45)
    assert first.vhosts["/"].queues["overlay.B2"].message_count == 1
    router_of(first).next_hops.resume()
    first.kernel.write_batch.flush()
    assert [one.text for one in await subscriber.until(1)] == [AT_45]
