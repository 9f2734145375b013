"""Answers to many askers at a broker that has a link for each of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.amqp10 import publisher as module
from penstock.client.amqp10.publisher import MAX_REPLY_LINKS, Amqp10ReplySender
from penstock.client.errors import FabricClosed


class Trunk:
    relays = False

    async def open(self) -> None: ...


class Outlet:
    """Keeps what is posted under way until it is told to settle it."""

    def __init__(self, trunk: Any, address: str | None) -> None:
        self.address = address
        self.closed = False
        self._under_way: list[asyncio.Future[None]] = []

    async def post(self, payload: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.append(future)
        return future

    async def close(self) -> None:
        self.closed = True
        for future in self._under_way:
            if not future.done():
                future.set_exception(FabricClosed("closed"))

    def settle(self) -> None:
        for future in self._under_way:
            future.set_result(None)
        self._under_way.clear()


@pytest.fixture
def outlets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outlet]:
    made: dict[str, Outlet] = {}

    def make(trunk: Any, address: str | None) -> Outlet:
        outlet = Outlet(trunk, address)
        return made.setdefault(address or "relay", outlet)

    monkeypatch.setattr(module, "Amqp10Publisher", make)
    return made


@pytest.fixture
def replies(outlets: dict[str, Outlet]) -> Amqp10ReplySender:
    trunk: Any = Trunk()
    return Amqp10ReplySender(trunk)


async def test_no_link_is_taken_off_while_an_answer_is_under_way(
    replies: Amqp10ReplySender, outlets: dict[str, Outlet]
) -> None:
    askers = [f"asker{n}" for n in range(MAX_REPLY_LINKS + 3)]
    sending = [asyncio.create_task(replies.send(one, b"")) for one in askers]
    await asyncio.sleep(0)
    assert [one for one in askers if outlets[one].closed] == []
    for one in askers:
        outlets[one].settle()
    await asyncio.gather(*sending)
    assert [one for one in askers if outlets[one].closed] == askers[:3]


async def test_the_link_that_was_used_longest_ago_is_taken_off(
    replies: Amqp10ReplySender, outlets: dict[str, Outlet]
) -> None:
    for one in (*(f"asker{n}" for n in range(MAX_REPLY_LINKS)), "asker0", "another"):
        sending = asyncio.create_task(replies.send(one, b""))
        await asyncio.sleep(0)
        outlets[one].settle()
        await sending
    assert [name for name, outlet in outlets.items() if outlet.closed] == ["asker1"]
