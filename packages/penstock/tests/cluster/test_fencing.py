"""Epochs fence former leaders: without them, what clients were told does not hold."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aio_pika
import pytest

from penstock.cluster.follower import LeaderLink
from penstock.server.cluster_member import ClusterMember
from tests.integration.cluster.checker import History, Leader, check

from .members import new_member, until, url
from .test_replication import QUORUM, bodies, message


def forget_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers accept a leader of any epoch."""
    handshake = LeaderLink._handshake

    async def ignorant(link: LeaderLink) -> None:
        link._member.epoch = 0
        await handshake(link)

    monkeypatch.setattr(LeaderLink, "_handshake", ignorant)


@asynccontextmanager
async def started(data: Path, follow: str = "") -> AsyncIterator[ClusterMember]:
    """Also one that has to stop."""
    member = new_member(data, follow, min_in_sync=2, follower_timeout=1.0)
    await member.start()
    try:
        yield member
    finally:
        await member.close()


async def publish(member: ClusterMember, text: str, history: History) -> None:
    async with await aio_pika.connect(url(member)) as connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(message(text.encode()), "q")
    leader = Leader(member.replication.epoch, member.member.node)
    history.confirm("q", text, leader, time.monotonic())


async def history_of_two_leaders(folder: Path) -> History:
    """By hand, a follower is promoted although its leader runs. The third follows the new leader,
    and is then sent back to the old one; in the end it is the only one left."""
    history = History()
    third = folder / "third"
    async with started(folder / "former") as former:
        await until(lambda: former.leads)
        async with started(folder / "new", former.address) as new:
            async with started(third, former.address):
                await until(lambda: len(former.replication.in_sync.members) == 3)
                async with await aio_pika.connect(url(former)) as connection:
                    channel = await connection.channel()
                    await channel.declare_queue("q", durable=True, arguments=QUORUM)
                new.promote()
                await until(lambda: new.leads)
            async with started(third, new.address):
                await until(lambda: len(new.replication.in_sync.members) == 2)
                await publish(new, "of the new leader", history)
        async with started(third, former.address) as back:
            both = {former.member.node, back.member.node}
            await until(
                lambda: former._failure is not None or former.replication.in_sync.members == both
            )
            if former._failure is None:
                await publish(former, "of the former leader", history)
            back.promote()
            await until(lambda: back.leads)
            history.final["q"] = {one.decode() for one in await bodies(back, "q")}
    return history


async def test_a_former_leader_is_fenced(tmp_path: Path) -> None:
    history = await history_of_two_leaders(tmp_path)
    assert {one.epoch for one in history.leaders} == {2}
    assert check(history) == []


async def test_the_checker_finds_followers_that_ignore_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_epochs(monkeypatch)
    found = check(await history_of_two_leaders(tmp_path))
    assert found
    assert "lost" in found[0]
