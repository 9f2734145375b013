"""Members of a cluster in this process, without a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.cluster.file_index import file_index
from penstock.core.config import BrokerSettings, ClusterSettings
from penstock.server.cluster_member import ClusterMember
from tests.peers import free_port

AMQP = "amqp://127.0.0.1:0"
HTTP = "http://127.0.0.1:0"
SECRET = "correct horse"


def new_member(
    data: Path, follow: str = "", settings: dict[str, Any] | None = None, **more: Any
) -> ClusterMember:
    """`settings` are the broker's, `more` the cluster's."""
    cluster = ClusterSettings(
        **{
            "listen": f"penstock://127.0.0.1:{free_port()}",
            "follow": follow,
            "secret": SECRET,
            "follower_timeout": 2.0,
            **more,
        }
    )
    broker = BrokerSettings(**{"listen": [AMQP, HTTP], "cluster": cluster, **(settings or {})})
    return ClusterMember(broker, data=data)


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - of several tasks
            await asyncio.sleep(0.02)


@asynccontextmanager
async def pair(folder: Path, **more: Any) -> AsyncIterator[tuple[ClusterMember, ClusterMember]]:
    """A leader, and a follower in sync."""
    async with new_member(folder / "leader", **more) as leader:
        await until(lambda: leader.leads)
        async with new_member(folder / "follower", leader.address, **more) as follower:
            await until(lambda: len(leader.replication.in_sync.members) == 2)
            yield leader, follower


def url(member: ClusterMember) -> str:
    return member.addresses[0].replace("://", "://guest:guest@")


def contents(data: Path) -> dict[str, tuple[int, bytes]]:
    return {one.path: (one.size, one.digests) for one in file_index(data)}


async def same_files(leader: ClusterMember, follower: ClusterMember) -> None:
    replication = leader.replication
    await until(
        lambda: all(link.acked >= replication.seal() for link in replication.links.values())
    )
    assert contents(follower.data) == contents(leader.data)
