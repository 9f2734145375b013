"""Connections that break, brokers that die: what a client asked for, and what it was promised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.client.padres import PadresClient, ReceivedPublication
from penstock.core.errors import PreconditionFailed, ResourceLocked
from tests.client.line import Line
from tests.fixtures import running
from tests.padres import BROKER, SECONDS, PadresBroker, Watcher


@pytest.fixture
async def line(padres: PadresBroker) -> AsyncIterator[Line]:
    async with Line(padres.port) as line:
        yield line


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[PadresBroker]:
    """A broker of the test's own, to be killed."""
    with running(PadresBroker(tmp_path / "broker")) as broker:
        yield broker


def url(line: Line) -> str:
    return f"padres://127.0.0.1:{line.port}/{BROKER}"


async def next_of(client: PadresClient) -> ReceivedPublication:
    async with asyncio.timeout(SECONDS):
        return await client.receive()


async def test_subscriptions_are_there_again_on_the_next_connection(
    line: Line, ada: PadresClient, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}]")
    async with PadresClient(url(line)) as client:
        wanted = await client.subscribe(f"[class,eq,{kind}]")
        line.cut()
        announced = await client.advertise(f"[class,eq,{kind}],[a,isPresent,0]")  # it is back
        await ada.publish(f"[class,{kind}]", b"after the break")

        assert (await next_of(client)).payload == b"after the break"
        await client.withdraw(wanted)  # by the name it had before
        await client.withdraw(announced)


async def test_a_publication_is_said_again_when_its_answer_was_lost(
    line: Line, bob: Watcher, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    async with PadresClient(url(line)) as client:
        await client.advertise(f"[class,eq,{kind}]")
        line.hold()
        publishing = asyncio.create_task(client.publish(f"[class,{kind}]", b"x"))
        await line.wait_for_bytes(1)
        line.cut()
        async with asyncio.timeout(SECONDS):
            await publishing

    found = await bob.got()
    assert 1 <= len(found) <= 2


async def test_a_client_waits_for_a_broker_that_is_away(line: Line, kind: str) -> None:
    async with PadresClient(url(line)) as client:
        await client.advertise(f"[class,eq,{kind}]")
        await client.subscribe(f"[class,eq,{kind}]")
        await line.down()
        publishing = asyncio.create_task(client.publish(f"[class,{kind}]", b"late"))
        await line.up()

        async with asyncio.timeout(SECONDS):
            await publishing
        assert (await next_of(client)).payload == b"late"


async def test_what_comes_while_a_lasting_client_is_away_waits_for_it(
    padres: PadresBroker, ada: PadresClient, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[n,isPresent,0]")
    async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as client:
        await client.subscribe(f"[class,eq,{kind}]")
    for number in range(3):
        await ada.publish(f"[class,{kind}],[n,{number}]")

    async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as client:
        await client.subscribe(f"[class,eq,{kind}]")  # again, which makes no difference
        assert [(await next_of(client))["n"] for _ in range(3)] == [0, 1, 2]
        await ada.publish(f"[class,{kind}],[n,3]")
        assert (await next_of(client))["n"] == 3
    async with PadresClient(padres.url, id=f"last-{kind}") as client:  # and is gone for good
        await client.subscribe(f"[class,eq,{kind}]")


async def test_a_lasting_client_takes_the_place_of_the_one_it_was(
    padres: PadresBroker, ada: PadresClient, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}]")
    async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as first:
        await first.subscribe(f"[class,eq,{kind}]")
        async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as second:
            with pytest.raises(ResourceLocked, match="has connected again"):
                await next_of(first)
            await ada.publish(f"[class,{kind}]")
            assert (await next_of(second)).class_name == kind


async def test_what_was_not_read_comes_again(
    padres: PadresBroker, ada: PadresClient, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}],[n,isPresent,0]")
    async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as client:
        await client.subscribe(f"[class,eq,{kind}]")
        for number in range(20):
            await ada.publish(f"[class,{kind}],[n,{number}]")
        assert (await next_of(client))["n"] == 0
    async with PadresClient(padres.url, id=f"last-{kind}", lasting=True) as client:
        found = [(await next_of(client))["n"] for _ in range(19)]
    assert found == list(range(1, 20))


def test_a_lasting_client_has_to_say_who_it_is() -> None:
    with pytest.raises(PreconditionFailed, match="needs an id"):
        PadresClient("padres://localhost", lasting=True)


async def test_a_confirmed_publication_outlives_the_broker(mortal: PadresBroker) -> None:
    async with PadresClient(mortal.url) as ada:
        await ada.advertise("[class,eq,k],[n,isPresent,0]")
        async with PadresClient(mortal.url, id="bob", lasting=True) as bob:
            await bob.subscribe("[class,eq,k],[n,<,100]")
            await ada.publish("[class,k],[n,-1]")
            assert (await next_of(bob))["n"] == -1
        await asyncio.gather(*[ada.publish(f"[class,k],[n,{number}]") for number in range(50)])
        mortal.server.kill()
        mortal.start()
        await ada.publish("[class,k],[n,50]")  # what it advertised is there again, too

    async with PadresClient(mortal.url, id="bob", lasting=True) as bob:
        found: list[object] = []
        while 50 not in found:
            found.append((await next_of(bob))["n"])
    assert set(range(51)) <= set(found)


async def test_a_broker_that_ends_tells_its_clients_and_they_come_back(
    mortal: PadresBroker,
) -> None:
    async with PadresClient(mortal.url) as client:
        await client.advertise("[class,eq,k]")
        await client.subscribe("[class,eq,k]")
        await asyncio.to_thread(mortal.stop)
        await asyncio.to_thread(mortal.start)
        await client.publish("[class,k]", b"again")

        assert (await next_of(client)).payload == b"again"
