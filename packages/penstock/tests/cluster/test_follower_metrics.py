"""What Prometheus gets from a follower: its own figures, and none that its leader has as well."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.metrics import FOLLOWER_METRICS
from penstock.server.cluster_member import ClusterMember

from .members import new_member, pair, until
from .test_replication import publisher_of_one


async def scraped(member: ClusterMember, path: str = "/metrics") -> dict[str, float]:
    def scrape() -> str:
        with urllib.request.urlopen(member.addresses[1] + path, timeout=20) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            return str(answer.read().decode())

    text = await asyncio.to_thread(scrape)
    families = text_string_to_metric_families(text)
    return {one.name: one.value for family in families for one in family.samples if not one.labels}


async def test_a_follower_has_figures_of_its_own(tmp_path: Path) -> None:
    async with pair(tmp_path) as (leader, follower):
        async with publisher_of_one(follower):
            ours, theirs = await scraped(follower), await scraped(leader)
        assert ours["penstock_cluster_leader"] == 0
        assert theirs["penstock_cluster_leader"] == 1
        assert ours["penstock_cluster_in_sync"] == theirs["penstock_cluster_in_sync"] == 1
        assert ours["penstock_cluster_epoch"] == theirs["penstock_cluster_epoch"] == 1
        assert ours["penstock_cluster_forwarded_connections"] == 1
        assert ours["penstock_memory_used_bytes"] > 0
        assert ours["penstock_disk_free_bytes"] > 0
        assert ours["penstock_log_sync_seconds_count"] > 0
        assert theirs["penstock_queues"] == 1
        assert len([name for name in ours if "_log_sync_" not in name]) == len(FOLLOWER_METRICS)
        assert await scraped(follower, "/metrics/detailed") == {}
        assert await scraped(follower, "/metrics/per-object?vhost=/") == {}


async def test_a_follower_without_its_leader_falls_behind(tmp_path: Path) -> None:
    async with new_member(tmp_path / "leader") as leader:
        await until(lambda: leader.leads)
        async with new_member(tmp_path / "follower", leader.address) as follower:
            await until(lambda: follower.is_in_sync)
            heard = follower.progress.current_at
            await until(lambda: follower.progress.current_at > heard)
            await leader.close()
            await until(lambda: not follower.is_in_sync)
            heard = follower.progress.current_at
            before = await scraped(follower)
            after = await scraped(follower)
            assert before["penstock_cluster_in_sync"] == 0
            lag = "penstock_cluster_lag_seconds"
            assert after[lag] > before[lag] > 0
            assert follower.progress.current_at == heard
