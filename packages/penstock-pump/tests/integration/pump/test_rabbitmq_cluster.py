"""Nodes of a RabbitMQ cluster are killed in turn, and every announced file arrives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock_pump.components import sarra, subscribe, watch
from tests.fixtures import needed
from tests.integration.pump.running import running, settings, tree, until
from tests.pump.servers import serving
from tests.rabbitmq_cluster import NODES, RabbitMQCluster

FILES = 60


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(600)
async def test_every_file_arrives_while_nodes_are_killed(tmp_path: Path, name: str) -> None:
    there, middle, here = tmp_path / "there", tmp_path / "middle", tmp_path / "here"
    for folder in (there, middle):
        folder.mkdir()
    with (
        await asyncio.to_thread(needed, RabbitMQCluster, tmp_path / "broker") as cluster,
        serving(there) as first,
        serving(middle) as second,
    ):
        # One program uses the balancer, the others have all nodes in their URL.
        posted = settings(
            "watch",
            cluster.url,
            tmp_path / "w",
            path=[str(there)],
            post_broker=cluster.urls,
            post_exchange=f"x{name}",
            post_base_url=first.url,
            post_base_dir=str(there),
        )
        copied = settings(
            "sarra",
            cluster.urls,
            tmp_path / "a",
            exchange=f"x{name}",
            directory=str(middle),
            mirror=True,
            durable=True,
            post_broker=cluster.urls,
            post_exchange=f"y{name}",
            post_base_url=second.url,
            post_base_dir=str(middle),
        )
        fetched = settings(
            "subscribe",
            cluster.url,
            tmp_path / "s",
            exchange=f"y{name}",
            directory=str(here),
            mirror=True,
            durable=True,
        )
        async with running(subscribe, fetched), running(sarra, copied), running(watch, posted):
            for turn in range(NODES):
                for number in range(FILES):
                    if number == FILES // 3:
                        await asyncio.to_thread(cluster.kill)
                    path = there / f"{turn}-{number}.txt"
                    path.write_text(f"content of {path.name}\n" * (number + 1))
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(cluster.start)
            await until(lambda: len(tree(here)) == NODES * FILES, 180)
        assert tree(here) == tree(there)
