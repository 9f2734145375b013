"""etcd and PostgreSQL decide alike who leads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster.coordinator import Coordinator, LeaderRecord, Lease, lease_clock
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.postgresql import PostgresqlCoordinator
from penstock.core.errors import ConfigurationError
from tests.fixtures import needed, running
from tests.peers import Etcd

NewCoordinator = Callable[[str], Coordinator]
LEASE = 2.0


@pytest.fixture(params=["etcd", "postgresql"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewCoordinator]:
    if request.param == "etcd":
        with running(needed(Etcd, tmp_path / "etcd")) as etcd:
            url = f"etcd://127.0.0.1:{etcd.port}/test"
            yield lambda node: EtcdCoordinator(url, node, LEASE)
    else:
        pytest.importorskip("penstock_store", reason="missing: penstock-store, for PostgreSQL")
        url = request.getfixturevalue("embedded")
        url += f"{'&' if '?' in url else '?'}cluster={uuid.uuid4().hex}"
        yield lambda node: PostgresqlCoordinator(url, node, LEASE)


def record(node: str) -> LeaderRecord:
    return LeaderRecord(node, "penstock://127.0.0.1:1", ("amqp://127.0.0.1:2",))


@pytest.mark.peer
async def test_one_leads_and_only_one_in_sync_follows(coordinator: NewCoordinator) -> None:
    a, b, c = coordinator("a"), coordinator("b"), coordinator("c")
    identity = await a.identify("")
    assert await b.identify("") == identity == await b.identify(identity[0])
    assert (await a.view()).in_sync is None

    first = await a.campaign(record("a"))
    assert first is not None
    assert first.in_sync == {"a"}
    assert await b.campaign(record("b")) is None
    view = await b.view()
    assert view.leader == record("a")
    assert view.epoch == first.epoch

    assert await a.record_in_sync(first.epoch, frozenset({"a", "b"}))
    assert not await b.record_in_sync(first.epoch + 1, frozenset({"b"}))
    assert not await b.force()
    assert await a.renew(first.epoch)

    await a.resign(first.epoch)
    assert await c.campaign(record("c")) is None, "it is not in sync"
    second = await b.campaign(record("b"))
    assert second is not None
    assert second.epoch > first.epoch
    assert second.in_sync == {"b"}, "the former leader has to catch up"
    assert not await a.record_in_sync(first.epoch, frozenset({"a"}))

    # Without renewal the lease ends.
    async with asyncio.timeout(20):
        while (await c.view()).leader is not None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.2)
    assert not await b.record_in_sync(second.epoch, frozenset({"b"}))
    assert await c.force()
    third = await c.campaign(record("c"))
    assert third is not None
    assert third.epoch > second.epoch


@pytest.mark.peer
async def test_an_unknown_cluster_is_refused(coordinator: NewCoordinator) -> None:
    with pytest.raises(ConfigurationError, match=r"restore .* delete cluster\.json"):
        await coordinator("a").identify("some other cluster")


async def test_an_unreachable_coordinator_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="refused"):
        await EtcdCoordinator("etcd://127.0.0.1:1/test", "a", LEASE).view()


def test_the_name_of_the_cluster_is_required() -> None:
    with pytest.raises(ConfigurationError, match="NAME"):
        EtcdCoordinator("etcd://127.0.0.1:2379", "a", LEASE)


@pytest.mark.parametrize(
    ("age", "is_safe", "is_over"),
    [(1.9, True, False), (2.1, False, False), (3.1, False, True)],
)
def test_a_lease_is_safe_for_two_thirds(age: float, is_safe: bool, is_over: bool) -> None:
    lease = Lease(3.0)
    lease.renewed_at = lease_clock() - age
    assert (lease.is_safe, lease.is_over) == (is_safe, is_over)


def test_a_late_answer_does_not_shorten_the_lease() -> None:
    lease = Lease(3.0)
    before = lease.renewed_at
    lease.renewed(before - 1.0)
    assert lease.renewed_at == before
