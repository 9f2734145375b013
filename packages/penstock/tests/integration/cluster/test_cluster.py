"""Three brokers and etcd, with faults: what clients were told holds."""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("proton", reason="missing: python-qpid-proton")

from .checker import check
from .namespaces import can_use_namespaces
from .processes import LEASE_SECONDS, USER, ClusterProcesses, MemberProcess
from .schedules import kill, run_schedule
from .workload import QUORUM, STREAM, Workload, connect


@pytest.mark.peer
def test_what_clients_were_told_holds_after_a_kill(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, namespaces=can_use_namespaces()) as cluster:
        workload = Workload(cluster, 1)
        workload.declare()
        with workload:
            workload.wait_for_confirms(50)
            leader = cluster.wait_in_sync()
            kill(workload, leader, leader)
            workload.wait_for_confirms(30)
            cluster.heal()
        history = workload.collect()
        assert check(history) == []
        assert len({one.epoch for one in history.leaders}) == 2


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(0)
def test_what_clients_were_told_holds_under_random_faults() -> None:
    """`CLUSTER_SEED` and `CLUSTER_SCHEDULES` choose the first seed and how many there are."""
    first = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(10**6))
    for seed in range(first, first + int(os.environ.get("CLUSTER_SCHEDULES") or 200)):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)  # PostgreSQL runs as another user when this runs as root
            assert run_schedule(Path(folder), seed) == [], f"seed {seed}"


def publish(member: MemberProcess, queue: str, *messages: str, wait: bool = True) -> None:
    """Without `wait`, nobody learns whether they are confirmed."""
    connection = connect(member)
    channel = connection.channel()
    if wait:
        channel.confirm_delivery()
    for message in messages:
        channel.basic_publish("", queue, message.encode())
    if wait:
        connection.close()
    else:
        connection.process_data_events(0.5)


def violations_of(folder: Path, mutant: str) -> list[str]:
    """A fault that makes this broken broker do harm."""
    # Long enough for a connection and a publish on a busy machine.
    lease = 15.0 if mutant == "remove_early" else LEASE_SECONDS
    with ClusterProcesses(folder, mutant, lease=lease) as cluster:
        workload = Workload(cluster, 1)
        workload.declare()
        history = workload.history
        leader = cluster.wait_in_sync()
        leader.links.lose_changes()  # nobody else gets changes from here on
        if mutant in ("ignore_lease", "remove_early"):
            leader.links.cut_off_coordinator()
        if mutant == "ignore_lease":
            cluster.wait_for_other_leader(leader)
        if mutant in ("confirm_early", "ignore_lease", "remove_early"):
            publish(leader, "q", "q-1")
            history.confirm("q", "q-1", None, time.monotonic())
        elif mutant == "ignore_high_water_mark":
            publish(leader, "stream", "seen too early", wait=False)
            workload._read_from(leader, "the first reader", 1.0)
        else:
            publish(leader, "q", "a tail that nobody else gets", wait=False)
        leader.kill()
        successor = cluster.wait_for_other_leader(leader)
        publish(successor, "stream", "after")
        publish(successor, "q", "after")
        history.confirm("q", "after", None, time.monotonic())
        cluster.heal()
        cluster.wait_in_sync()
        if mutant == "keep_tail":
            leader.request("/api/cluster/promote", {})
            cluster.wait_for_other_leader(successor)
        return check(workload.collect())


@pytest.mark.peer
@pytest.mark.parametrize(
    ("mutant", "violation"),
    [
        ("confirm_early", "lost"),
        pytest.param("ignore_lease", "lost", marks=pytest.mark.slow),
        pytest.param("remove_early", "lost", marks=pytest.mark.slow),
        pytest.param("ignore_high_water_mark", "at offset 0", marks=pytest.mark.slow),
        pytest.param("keep_tail", "lost", marks=pytest.mark.slow),
    ],
)
def test_the_checker_finds_a_broken_broker(tmp_path: Path, mutant: str, violation: str) -> None:
    found = violations_of(tmp_path, mutant)
    assert found
    assert violation in found[0]


@pytest.mark.slow
@pytest.mark.peer
def test_the_same_faults_do_no_harm_to_a_sound_broker(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        leader = cluster.wait_in_sync()
        connection = connect(leader)
        connection.channel().queue_declare("q", durable=True, arguments=QUORUM)
        connection.channel().queue_declare("stream", durable=True, arguments=STREAM)
        leader.links.lose_changes()
        publish(leader, "stream", "not seen", wait=False)
        publish(leader, "q", "a tail that nobody else gets", wait=False)
        leader.kill()
        successor = cluster.wait_for_other_leader(leader)
        publish(successor, "stream", "after")
        cluster.heal()
        leader = cluster.wait_in_sync()
        workload = Workload(cluster, 1)
        workload._read_from(leader, "reader", 1.0)
        assert workload.history.reads == [("reader", 0, "after")]


@pytest.mark.slow
@pytest.mark.peer
def test_celery_works_on_after_a_failover(tmp_path: Path) -> None:
    """With all members in the URL of the broker, the killed leader first."""
    pytest.importorskip("celery", reason="missing: celery")
    from kombu.exceptions import OperationalError

    from tests.integration.clients.test_celery import Deployment

    with ClusterProcesses(tmp_path, namespaces=can_use_namespaces()) as cluster:
        leader = cluster.wait_in_sync()
        members = sorted(cluster.members, key=lambda one: one is not leader)
        urls = [f"amqp://{USER}:{USER}@{one.host}:{one.amqp}//" for one in members]
        deployment = Deployment(SimpleNamespace(url=";".join(urls)), tmp_path, "celery")
        try:
            deployment.start_worker()
            deployment.send("note_down", "before")
            deployment.wait_for_lines(1)
            leader.kill()
            cluster.wait_for_other_leader(leader)
            deadline = time.monotonic() + 30
            while True:
                try:
                    deployment.send("note_down", "after")
                    break
                except OperationalError:  # its own retries are over
                    assert time.monotonic() < deadline
            assert deployment.wait_for_lines(2)[:2] == ["before", "after"]
        finally:
            deployment.close()
            deployment.client.close()
