"""Who leads, with etcd: after a stop, on request, and when etcd cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from typer.testing import CliRunner

from penstock.cli.cluster import app
from penstock.client.management import call_management_api
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.server import Broker
from penstock.server.cluster_member import ClusterMember
from tests.fixtures import needed, running
from tests.peers import Etcd

from .members import new_member, same_files, until, url
from .test_replication import QUORUM, bodies, message

pytestmark = pytest.mark.peer


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    with running(needed(Etcd, tmp_path / "etcd")) as server:
        yield f"etcd://127.0.0.1:{server.port}/test"


def http(member: ClusterMember) -> str:
    return member.addresses[1].replace("://", "://guest:guest@")


async def in_sync(leader: ClusterMember, count: int) -> None:
    await until(lambda: leader.leads and len(leader.replication.in_sync.members) == count)


async def test_a_rolling_restart_loses_nothing(etcd: str, tmp_path: Path) -> None:
    async with new_member(tmp_path / "b", url=etcd) as b:
        async with new_member(tmp_path / "a", url=etcd) as a:
            await until(lambda: a.leads or b.leads)
            leader, follower = (a, b) if a.leads else (b, a)
            await in_sync(leader, 2)
            async with await aio_pika.connect(url(follower)) as connection:
                channel = await connection.channel()
                await channel.declare_queue("q", durable=True, arguments=QUORUM)
                await channel.declare_queue("local", durable=True)
                for queue in ("q", "local"):
                    await channel.default_exchange.publish(message(b"x"), queue)
            epoch = leader.member.epoch
            # On request another leads, at once and with everything.
            await asyncio.to_thread(
                call_management_api, http(follower), "/api/cluster/promote", {"force": False}
            )
            await until(lambda: follower.leads)
            assert follower.member.epoch > epoch
            await in_sync(follower, 2)
            assert leader.describe()["role"] == "follower"
            with pytest.raises(PenstockError, match="leads already"):
                await asyncio.to_thread(
                    call_management_api, http(follower), "/api/cluster/promote", {}
                )
            if follower is a:  # so that the one that stops now leads
                await asyncio.to_thread(
                    call_management_api, http(b), "/api/cluster/promote", {"force": False}
                )
                await until(lambda: b.leads)
                await in_sync(b, 2)
        await in_sync(b, 1)
        assert await bodies(b, "q") == [b"x"]
        assert await bodies(b, "local") == [b"x"]


async def test_a_leader_without_etcd_stops_before_another_leads(etcd: str, tmp_path: Path) -> None:
    async with new_member(tmp_path / "a", url=etcd, lease=1.5) as a:
        await until(lambda: a.leads)
        assert a.coordinator is not None
        assert not a.is_fenced()

        async def fail(epoch: int) -> bool:
            raise OSError("cut off")

        a.coordinator.renew = fail  # type: ignore[method-assign]
        await until(a.is_fenced)
        assert a.leads, "it waits for the lease to end"
        await until(lambda: not a.leads)
        del a.coordinator.renew
        await until(lambda: a.leads)


async def test_without_a_member_in_sync_the_operator_decides(etcd: str, tmp_path: Path) -> None:
    async with new_member(tmp_path / "a", url=etcd) as a:
        await until(lambda: a.leads)
        async with new_member(tmp_path / "b", url=etcd) as b:
            await in_sync(a, 2)
            await same_files(a, b)
        a.remove(b.member.node)
        await in_sync(a, 1)
    async with new_member(tmp_path / "b", url=etcd) as b:

        def promote(*flags: str) -> str:
            arguments = ["promote", "--url", http(b), *flags]
            result = CliRunner().invoke(app, arguments)
            return result.output or str(result.exception)

        refused = await asyncio.to_thread(promote)
        assert "nobody leads" in refused
        assert "--force" in refused
        assert not b.leads
        assert "will lead" in await asyncio.to_thread(promote, "--force")
        await in_sync(b, 1)


async def test_a_leader_that_cannot_start_says_why_and_resigns(
    etcd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listen(*_: Any) -> None:
        raise ConfigurationError("cannot listen on amqp://127.0.0.1:5672: address already in use")

    monkeypatch.setattr(Broker, "_listen", listen)
    a = new_member(tmp_path / "a", url=etcd)
    await a.start()
    await until(lambda: a._failure is not None)
    assert a.coordinator is not None
    assert (await a.coordinator.view()).leader is None
    with pytest.raises(ConfigurationError, match="already in use"):
        await a.__aexit__()


async def test_an_old_directory_is_refused_by_a_new_etcd(etcd: str, tmp_path: Path) -> None:
    async with new_member(tmp_path / "a", url=etcd) as a:
        await until(lambda: a.leads)
    with pytest.raises(ConfigurationError, match=r"cluster\.json"):
        await new_member(tmp_path / "a", url=etcd.replace("test", "other")).start()


async def test_the_data_of_one_cluster_is_refused_by_another(etcd: str, tmp_path: Path) -> None:
    other = etcd.replace("test", "other")
    async with (
        new_member(tmp_path / "a", url=etcd) as a,
        new_member(tmp_path / "b", url=other) as b,
    ):
        await until(lambda: a.leads and b.leads)
    for command in (
        new_member(tmp_path / "a", url=other).start,
        partial(join, other, tmp_path / "a"),
    ):
        with pytest.raises(ConfigurationError, match=r"data of cluster .* empty directory"):
            await command()


async def join(url: str, data: Path) -> None:
    arguments = ["join", url, "--data", str(data)]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert result.exception is not None
    raise result.exception


def test_join_remembers_the_cluster(etcd: str, tmp_path: Path) -> None:
    from penstock.cluster.member import with_remembered_cluster
    from penstock.core.config import BrokerSettings

    result = CliRunner().invoke(app, ["join", etcd, "--data", str(tmp_path / "a")])
    assert result.exit_code == 0, result.output
    assert "penstock broker --data" in result.output
    assert with_remembered_cluster(BrokerSettings(), tmp_path / "a").cluster.url == etcd
    leader = "penstock://127.0.0.1:5690"
    result = CliRunner().invoke(app, ["join", leader, "--data", str(tmp_path / "b")])
    assert result.exit_code == 0, result.output
    assert with_remembered_cluster(BrokerSettings(), tmp_path / "b").cluster.follow == leader
