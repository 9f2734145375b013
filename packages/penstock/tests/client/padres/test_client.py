"""The PADRES client: its inboxes, several brokers at once, what it may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.client.padres import PadresClient
from penstock.client.padres.blocking_client import BlockingPadresClient as BlockingClient
from penstock.core.errors import ContentTooLarge, NotFound, PreconditionFailed
from tests.fixtures import running
from tests.padres import SECONDS, PadresBroker, Watcher
from tests.peers import free_port


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PadresBroker]:
    folder = tmp_path_factory.mktemp("other")
    with running(PadresBroker(folder, "--set", "broker.overlay.id=Broker2")) as broker:
        yield broker


# Inboxes.


async def test_publications_are_parted_by_what_they_say(
    padres: PadresBroker, ada: PadresClient, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[a,isPresent,0]")
    await ada.subscribe(f"[class,eq,{kind}]")
    low = ada.inbox(f"[class,eq,{kind}],[a,<,10]")
    odd = ada.inbox(f"[class,eq,{kind}],[a,=,5]", f"[class,eq,{kind}],[a,=,15]")
    for value in (1, 5, 15, 20):
        await ada.publish(f"[class,{kind}],[a,{value}]")

    async with asyncio.timeout(SECONDS):
        assert [(await low.receive())["a"] for _ in range(2)] == [1, 5]
        assert [(await odd.receive())["a"] for _ in range(2)] == [5, 15]
        assert (await ada.receive())["a"] == 20


async def test_a_closed_inbox_gives_way(ada: PadresClient, kind: str) -> None:
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.subscribe(f"[class,eq,{kind}]")
    inbox = ada.inbox()
    inbox.close()
    await ada.publish(f"[class,{kind}]")

    async with asyncio.timeout(SECONDS):
        assert (await ada.receive()).class_name == kind
    assert [received async for received in inbox] == []


async def test_what_a_slow_reader_does_not_read_waits_in_order(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    count = 3000  # more than a broker sends ahead
    await ada.advertise(f"[class,eq,{kind}],[n,isPresent,0]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    posted = [
        await ada.post(f"[class,{kind}],[n,{number}]", durable=False) for number in range(count)
    ]
    await asyncio.gather(*posted)

    assert [one["n"] for one in await bob.got()] == list(range(count))


async def test_urgent_publications_overtake_those_that_wait(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[n,isPresent,0]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    for posted in [await ada.post(f"[class,{kind}],[n,{number}]") for number in range(1500)]:
        await posted
    await ada.publish(f"[class,{kind}],[n,-1]", priority=0)
    await ada.publish(f"[class,{kind}],[n,-2]", priority=9)

    numbers = [one["n"] for one in await _until(bob.client, -2)]
    assert numbers.index(-1) < 1499
    assert numbers[-1] == -2


async def _until(client: PadresClient, last: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    async with asyncio.timeout(SECONDS):
        while not found or found[-1]["n"] != last:
            received = await client.receive()
            found.append(dict(received.attributes))
    return found


# Brokers.


async def test_one_client_at_two_brokers(
    padres: PadresBroker, other: PadresBroker, kind: str
) -> None:
    second = other.url.replace("Broker1", "Broker2")
    async with PadresClient(padres.url, second) as client:
        for broker in ("", "Broker2"):
            await client.advertise(f"[class,eq,{kind}],[at,isPresent,'']", broker=broker)
            await client.subscribe(f"[class,eq,{kind}]", broker=broker)
        await client.publish(f"[class,{kind}],[at,'first']")
        await client.publish(f"[class,{kind}],[at,'second']", broker="Broker2")

        async with asyncio.timeout(SECONDS):
            found = [await client.receive() for _ in range(2)]
        assert {(one.broker, one["at"]) for one in found} == {
            ("Broker1", "first"),
            ("Broker2", "second"),
        }
        with pytest.raises(NotFound, match="no connection to Broker3"):
            await client.publish(f"[class,{kind}]", broker="Broker3")
        with pytest.raises(PreconditionFailed, match="already"):
            await client.connect(second + "?heartbeat=3")
        await client.disconnect("Broker1")
        assert list(client.brokers) == ["Broker2"]


async def test_a_broker_that_was_left_can_be_connected_to_again(
    padres: PadresBroker, kind: str
) -> None:
    async with PadresClient(padres.url) as client:
        await client.disconnect()
        await client.connect(padres.url)
        await client.advertise(f"[class,eq,{kind}]")
        await client.subscribe(f"[class,eq,{kind}]")
        await client.publish(f"[class,{kind}]")

        async with asyncio.timeout(SECONDS):
            assert (await client.receive()).class_name == kind
    assert [received async for received in client] == []


async def test_a_client_without_a_broker_says_so() -> None:
    with pytest.raises(NotFound, match="not connected"):
        await PadresClient().publish("[class,x]")


async def test_leaving_withdraws_all_there_was(
    padres: PadresBroker, bob: Watcher, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    async with PadresClient(padres.url, id=f"once-{kind}") as client:
        await client.advertise(f"[class,eq,{kind}]")
        await client.publish(f"[class,{kind}]")
    async with PadresClient(padres.url, id=f"once-{kind}") as client:
        with pytest.raises(PreconditionFailed):
            await client.publish(f"[class,{kind}]")

    assert len(await bob.got()) == 1


# Interests.


async def test_an_attentive_client_is_told_who_wants_what_it_advertises(
    padres: PadresBroker, bob: Watcher, kind: str
) -> None:
    before = await bob.client.subscribe(f"[class,eq,{kind}],[a,=,1]")
    async with PadresClient(padres.url, attentive=True) as client:
        await client.advertise(f"[class,eq,{kind}],[a,<,10]")
        await bob.client.subscribe(f"[class,eq,{kind}],[a,>,20]")
        after = await bob.client.subscribe(f"[class,eq,{kind}],[a,>,5]")
        await bob.client.withdraw(before)

        async with asyncio.timeout(SECONDS):
            found = [await client.interests.receive() for _ in range(3)]
    assert [(one.id, one.text, one.withdrawn) for one in found] == [
        (before, f"[class,eq,{kind}],[a,=,1]", False),
        (after, f"[class,eq,{kind}],[a,>,5]", False),
        (before, "", True),
    ]


# Without async.


def test_the_client_for_those_who_wait(padres: PadresBroker, kind: str) -> None:
    with BlockingClient(padres.url) as client:
        client.advertise(f"[class,eq,{kind}],[a,isPresent,0]")
        wanted = client.subscribe(f"[class,eq,{kind}]")
        inbox = client.inbox(f"[class,eq,{kind}],[a,=,1]")
        client.publish(f"[class,{kind}],[a,1]", b"one")
        client.publish(f"[class,{kind}],[a,2]", b"two")

        assert inbox.receive(timeout=SECONDS).payload == b"one"
        assert next(iter(client)).payload == b"two"
        client.withdraw(wanted)
        with pytest.raises(PreconditionFailed):
            client.publish(f"[class,{kind}],[b,1]")
        with pytest.raises(TimeoutError):
            client.receive(timeout=0.01)


def test_those_who_wait_are_told_when_nobody_answers() -> None:
    with pytest.raises(ConnectionError), BlockingClient(f"padres://127.0.0.1:{free_port()}"):
        pass


@pytest.mark.parametrize("lasting", [False, True])
async def test_a_payload_of_half_a_mebibyte_arrives_whole(
    padres: PadresBroker, ada: PadresClient, kind: str, lasting: bool
) -> None:
    payload = bytes(range(256)) * 2048
    await ada.advertise(f"[class,eq,{kind}]")
    async with PadresClient(padres.url, id=f"big-{kind}", lasting=lasting) as client:
        await client.subscribe(f"[class,eq,{kind}]")
        for _ in range(3):
            await ada.publish(f"[class,{kind}]", payload)

        async with asyncio.timeout(SECONDS):
            assert [(await client.receive()).payload for _ in range(3)] == [payload] * 3


async def test_a_payload_that_is_too_large_is_refused(ada: PadresClient, kind: str) -> None:
    await ada.advertise(f"[class,eq,{kind}]")

    with pytest.raises(ContentTooLarge, match="the broker accepts 1048576"):
        await ada.publish(f"[class,{kind}]", bytes(2 << 20))
    assert await ada.publish(f"[class,{kind}]", bytes(1 << 19))
