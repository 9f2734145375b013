"""etcd and PostgreSQL decide alike who leads."""

from __future__ import annotations

import asyncio
import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.cluster import coordinators
from penstock.cluster.coordinator import Coordinator, LeaderRecord, Lease, lease_clock
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.postgresql import PostgresqlCoordinator
from penstock.core.errors import ConfigurationError
from penstock.core.retry import RetryPolicy
from tests.fixtures import needed, running
from tests.peers import Etcd

from .members import new_member, until

NewCoordinator = Callable[[str], Coordinator]
LEASE = 2.0


@pytest.fixture(params=["etcd", "postgresql"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewCoordinator]:
    if request.param == "etcd":
        with running(needed(Etcd, tmp_path / "etcd")) as etcd:
            url = f"etcd://127.0.0.1:{etcd.port}/test"
            yield lambda node: patient(EtcdCoordinator(url, node, LEASE))
    else:
        pytest.importorskip("penstock_store", reason="missing: penstock-store, for PostgreSQL")
        url = request.getfixturevalue("embedded")
        url += f"{'&' if '?' in url else '?'}cluster={uuid.uuid4().hex}"
        yield lambda node: patient(PostgresqlCoordinator(url, node, LEASE))


AnyCoordinator = TypeVar("AnyCoordinator", EtcdCoordinator, PostgresqlCoordinator)


def patient(coordinator: AnyCoordinator) -> AnyCoordinator:
    """A third of the lease is little on a busy machine, and here nobody tries again."""
    coordinator._timeout = 60.0
    return coordinator


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


@pytest.fixture
def guarded_etcd(tmp_path: Path) -> Iterator[str]:
    """An etcd with the users root and ann, of whom only root has rights: its address."""
    with running(needed(Etcd, tmp_path / "etcd")) as etcd:

        def call(path: str, **body: str) -> None:
            url = f"http://127.0.0.1:{etcd.port}/v3/auth/{path}"
            urllib.request.urlopen(url, json.dumps(body).encode(), timeout=20).close()

        for name, password in (("root", "p@ss/word"), ("ann", "hers")):
            call("user/add", name=name, password=password)
        call("user/grant", user="root", role="root")
        call("enable")
        yield f"127.0.0.1:{etcd.port}/test"


@pytest.mark.peer
async def test_etcd_with_users(guarded_etcd: str, tmp_path: Path) -> None:
    coordinator = EtcdCoordinator(f"etcd://root:p%40ss%2Fword@{guarded_etcd}", "a", LEASE)
    identity = await coordinator.identify("")
    assert await coordinator.campaign(record("a")) is not None
    coordinator._token += "x"  # as one that has ended
    assert await coordinator.identify("") == identity
    for user in ("", "root:wrong@", "nobody:x@", "ann:hers@"):
        member = new_member(tmp_path / "data", url=f"etcd://{user}{guarded_etcd}")
        with pytest.raises(ConfigurationError, match=r"etcd at .*; correct the user and the pass"):
            await member.start()


@pytest.mark.peer
async def test_etcd_without_users_refuses_one(tmp_path: Path) -> None:
    with running(needed(Etcd, tmp_path / "etcd")) as etcd:
        coordinator = EtcdCoordinator(f"etcd://ann:x@127.0.0.1:{etcd.port}/test", "a", LEASE)
        with pytest.raises(PermissionError, match="authentication is not enabled"):
            await coordinator.view()


@pytest.fixture
def guarded_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server with the users owner and ann, who have passwords and no rights yet."""
    import psycopg

    pytest.importorskip("penstock_store", reason="missing: penstock-store, for PostgreSQL")
    from tests.databases import with_name

    embedded = request.getfixturevalue("embedded")
    with psycopg.connect(embedded, autocommit=True) as connection:
        [(name,)] = connection.execute("SHOW hba_file").fetchall()
        rules = Path(name)
        before = rules.read_text()
        # Only for these users: other tests use the server as well.
        rules.write_text(f"local all guarded_owner,guarded_ann scram-sha-256\n{before}")
        connection.execute("CREATE ROLE guarded_owner LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE guarded_ann LOGIN PASSWORD 'hers'")
        connection.execute("CREATE DATABASE guarded OWNER guarded_owner")
        connection.execute("SELECT pg_reload_conf()")
        yield with_name(embedded, "guarded")
        rules.write_text(before)
        connection.execute("DROP DATABASE guarded WITH (FORCE)")
        connection.execute("DROP ROLE guarded_owner, guarded_ann")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.peer
async def test_postgresql_with_passwords(guarded_database: str, tmp_path: Path) -> None:
    import psycopg

    before, _, after = guarded_database.partition("://")[2].partition("@")
    assert before
    coordinator = PostgresqlCoordinator(f"postgresql://guarded_owner:right@{after}", "a", LEASE)
    assert await coordinator.identify("")
    for user in ("guarded_owner", "guarded_owner:wrong", "guarded_nobody:x", "guarded_ann:hers"):
        member = new_member(tmp_path / "data", url=f"postgresql://{user}@{after}")
        with pytest.raises(ConfigurationError, match=r"PostgreSQL: .*; correct the user and the"):
            await member.start()
    with psycopg.connect(guarded_database, autocommit=True) as connection:
        connection.execute("GRANT SELECT, UPDATE ON penstock_cluster TO guarded_ann")
    ann = PostgresqlCoordinator(f"postgresql://guarded_ann:hers@{after}", "b", LEASE)
    assert await ann.identify("") == await coordinator.identify("")
    assert await ann.campaign(record("b")) is not None


@pytest.mark.peer
async def test_a_member_waits_for_a_coordinator_that_starts_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "REACH", RetryPolicy.fixed(0.1))
    etcd = needed(Etcd, tmp_path / "etcd")
    attempts = 0
    identify = EtcdCoordinator.identify

    async def count(self: EtcdCoordinator, known: str) -> tuple[str, str]:
        nonlocal attempts
        attempts += 1
        return await identify(self, known)

    monkeypatch.setattr(EtcdCoordinator, "identify", count)
    member = new_member(tmp_path / "a", url=f"etcd://127.0.0.1:{etcd.port}/test")
    starting = asyncio.create_task(member.start())
    await until(lambda: attempts > 2)
    assert not starting.done()
    try:
        await asyncio.to_thread(etcd.start)
        await starting
        await until(lambda: member.leads)
    finally:
        await member.close()
        etcd.stop()


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1/test", "postgresql://127.0.0.1:1/test"])
async def test_a_member_gives_up_after_its_start_timeout(tmp_path: Path, url: str) -> None:
    member = new_member(tmp_path / "a", url=url, start_timeout=0.0)
    with pytest.raises(ConfigurationError, match=r"refused.*; start it first, or correct the URL"):
        await member.start()
    again = new_member(tmp_path / "a", url=url, start_timeout=0.0)  # the directory is free
    with pytest.raises(ConfigurationError, match="start it first"):
        await again.start()


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


@pytest.mark.peer
async def test_members_that_start_at_the_same_time_agree(coordinator: NewCoordinator) -> None:
    members = [coordinator(name) for name in "abcdefgh"]
    identities = await asyncio.gather(*(member.identify("") for member in members))
    assert len(set(identities)) == 1
