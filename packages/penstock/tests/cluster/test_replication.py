"""A follower has the leader's files at any time, and can lead with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, Message
from aio_pika.exceptions import DeliveryError
from typer.testing import CliRunner

from penstock.broker.user import User
from penstock.cli.cluster import app
from penstock.client.management import call_management_api
from penstock.cluster.member import Member
from penstock.core.config import BrokerSettings
from penstock.core.errors import ConfigurationError, PenstockError, ResourceLocked
from penstock.server import Broker
from penstock.server.cluster_member import ClusterMember

from .members import AMQP, new_member, pair, same_files, until, url

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
STREAM: dict[str, Any] = {"x-queue-type": "stream"}


def message(body: bytes) -> Message:
    return Message(body, delivery_mode=DeliveryMode.PERSISTENT)


async def bodies(member: ClusterMember, queue: str) -> list[bytes]:
    found = []
    async with await aio_pika.connect(url(member)) as connection:
        channel = await connection.channel()
        declared = await channel.get_queue(queue)
        while (got := await declared.get(fail=False, no_ack=True)) is not None:
            found.append(got.body)
    return found


async def test_everything_is_copied_and_a_promoted_follower_has_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            quorum = await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.declare_queue("s", durable=True, arguments=STREAM)
            gone = await channel.declare_queue("gone", durable=True)
            for number in range(20):
                await channel.default_exchange.publish(message(b"%d" % number), "q")
                await channel.default_exchange.publish(message(b"%d" % number), "s")
                await channel.default_exchange.publish(message(b"%d" % number), "gone")
            fanout = await channel.declare_exchange("f", aio_pika.ExchangeType.FANOUT, durable=True)
            await quorum.bind(fanout)
            await gone.bind(fanout)
            large = bytes(range(256)) * 4096  # a megabyte, in a file that both queues link
            await fanout.publish(message(large), "")
            for _ in range(5):
                got = await quorum.get()
                await got.ack()
            await gone.delete(if_empty=False, if_unused=False)
        broker = leader.broker
        assert broker is not None
        broker.users.add("ann", "secret")
        broker.replicate_users()
        await broker.replicated()
        await same_files(leader, follower)
        await leader.close()
        follower._promoted.set()
        await until(lambda: follower.leads)
        assert follower.member.epoch == leader.member.epoch + 1
        assert follower.broker is not None
        assert isinstance(follower.broker.users.get("ann"), User)
        assert follower.broker.vhosts["/"].queues["s"].message_count == 20
        found = await bodies(follower, "q")
        assert found == [*(b"%d" % number for number in range(5, 20)), large]


async def test_a_follower_forwards_clients_to_the_leader(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with await aio_pika.connect(url(follower)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.default_exchange.publish(message(b"x"), "q")
        assert await bodies(leader, "q") == [b"x"]


async def test_a_break_is_mended_by_comparison_and_a_former_leader_drops_its_tail(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.default_exchange.publish(message(b"both"), "q")
        await follower.close()
        log = next((follower.data / "log" / "queues").glob("*/*/*.seg"))
        log.write_bytes(log.read_bytes() + b"a tail that nobody else has")
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(message(b"meanwhile"), "q")
        async with new_member(follower.data, leader.address) as back:
            await until(lambda: back.member.node in leader.replication.in_sync.members)
            assert back.member.node == follower.member.node
            await same_files(leader, back)


async def test_confirms_wait_for_the_follower(tmp_path: Path) -> None:
    async with (
        pair(tmp_path) as (leader, _),
        await aio_pika.connect(url(leader)) as connection,
    ):
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True, arguments=QUORUM)
        await channel.declare_queue("local", durable=True)
        replication = leader.replication
        acknowledged = replication.in_sync.acknowledged
        replication.in_sync.acknowledged = lambda node, sequence: None  # type: ignore[method-assign]
        await channel.default_exchange.publish(message(b"x"), "local")
        publishing = asyncio.ensure_future(channel.default_exchange.publish(message(b"x"), "q"))
        declaring = asyncio.ensure_future(channel.declare_queue("late", durable=True))
        await until(lambda: min(link.acked for link in replication.links.values()) > 0)
        await asyncio.sleep(0.1)
        assert not publishing.done()
        assert not declaring.done()
        replication.in_sync.acknowledged = acknowledged  # type: ignore[method-assign]
        await asyncio.wait_for(asyncio.gather(publishing, declaring), 10)


async def test_too_few_members_refuse_publishes(tmp_path: Path) -> None:
    async with pair(tmp_path, min_in_sync=2, follower_timeout=0.5) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q", durable=True, arguments=QUORUM)
            await channel.declare_queue("local", durable=True)
            await channel.default_exchange.publish(message(b"x"), "q")
            await follower.close()
            await until(lambda: leader.replication.refuses)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(message(b"x"), "q")
            await channel.default_exchange.publish(message(b"x"), "local")


async def test_a_follower_that_lags_starts_again(tmp_path: Path) -> None:
    async with pair(tmp_path, max_lag=1 << 20) as (leader, follower):
        async with await aio_pika.connect(url(leader)) as connection:
            channel = await connection.channel(publisher_confirms=False)
            await channel.declare_queue("q", durable=True)
            for _ in range(60):
                await channel.default_exchange.publish(message(bytes(100_000)), "q")
        await until(lambda: follower.member.node in leader.replication.in_sync.members)
        await until(lambda: leader.replication.links)
        await same_files(leader, follower)


async def test_changes_of_an_older_epoch_are_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        link = follower._link
        assert link is not None
        follower.member.saw(leader.replication.epoch + 1)
        old = leader.replication.links[follower.member.node].acked
        leader.replication._ship()
        await until(lambda: follower._link is not link or follower._following.done())  # type: ignore[union-attr]
        assert leader.replication.in_sync._acked[follower.member.node] <= old + 1
        # The leader learns that it is deposed, and stops.
        await until(lambda: leader._failure is not None)
        assert not leader.leads
        with pytest.raises(ConfigurationError, match="another member was promoted"):
            await leader.__aexit__()
        leader._failure = None


async def test_the_status_is_shown_and_double_promotion_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):

        def promote(member: ClusterMember) -> None:
            address = member.addresses[1].replace("://", "://guest:guest@")
            call_management_api(address, "/api/cluster/promote", {"force": False})

        def status(member: ClusterMember) -> str:
            address = member.addresses[1].replace("://", "://guest:guest@")
            return CliRunner().invoke(app, ["status", "--url", address]).output

        for member in (leader, follower):
            shown = await asyncio.to_thread(status, member)
            assert f"leader  {leader.member.node}" in shown
            assert follower.member.node in shown
        with pytest.raises(PenstockError, match="stop it first"):
            await asyncio.to_thread(promote, follower)
        with pytest.raises(PenstockError, match="leads already"):
            await asyncio.to_thread(promote, leader)


async def test_a_wrong_secret_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        async with new_member(tmp_path / "other", leader.address, secret="wrong") as other:
            await until(lambda: "secret" in other._last_error)
            assert not (other.data / "log").exists()


async def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        async with new_member(tmp_path / "other") as other:
            await until(lambda: other.leads)
        member = Member.load(other.data)
        member.set_leader(False)
        other = new_member(other.data, leader.address)
        await other.start()
        await until(lambda: other._failure is not None)
        with pytest.raises(ConfigurationError, match=r"data of cluster .* empty directory"):
            await other.__aexit__()


async def test_data_of_a_broker_in_no_cluster_is_not_overwritten(tmp_path: Path) -> None:
    async with Broker(BrokerSettings(listen=[AMQP]), data=tmp_path / "other"):
        pass
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        other = new_member(tmp_path / "other", leader.address)
        await other.start()
        await until(lambda: other._failure is not None)
        with pytest.raises(ConfigurationError, match="empty directory"):
            await other.__aexit__()
        assert (tmp_path / "other" / "log" / "topology.jsonl").exists()


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        with pytest.raises(ResourceLocked, match="--data"):
            await new_member(tmp_path / "leader").start()


async def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 99}')
    with pytest.raises(ConfigurationError, match="start the version"):
        await new_member(tmp_path).start()


async def test_without_a_secret_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SECRET"):
        await new_member(tmp_path, secret="").start()
