"""Three brokers and etcd, with faults: what clients were told holds."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("proton", reason="missing: python-qpid-proton")

from .checker import check
from .network import BACK, THERE
from .processes import LEASE_SECONDS, ClusterProcesses, MemberProcess
from .workload import QUORUM, STREAM, Workload, connect

#: Longer than a lease and a follower's timeout.
FAULT_SECONDS = 2.5 * LEASE_SECONDS


def kill(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    workload.history.deaths.append(time.monotonic())
    leader.kill()


def pause(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.signal(signal.SIGSTOP)


def cut_off_completely(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.to_etcd.stall()
    leader.from_followers.stall()


def cut_off_from_etcd(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.to_etcd.stall()


def cut_off_from_followers(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.from_followers.stall()


def lose_acknowledgements(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.from_followers.stall(THERE)


def lose_changes(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.from_followers.stall(BACK)


def slow_down(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.from_followers.delay = 0.05


def kill_all(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    for member in workload.cluster.members:
        member.kill()


def kill_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    other.kill()


def pause_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    other.signal(signal.SIGSTOP)


FAULTS: list[Callable[[Workload, MemberProcess, MemberProcess], None]] = [
    kill,
    pause,
    cut_off_completely,
    cut_off_from_etcd,
    cut_off_from_followers,
    lose_acknowledgements,
    lose_changes,
    slow_down,
    kill_all,
    kill_follower,
    pause_follower,
]


def run_schedule(folder: Path, seed: int, faults: int) -> list[str]:
    """Random faults, one after another, each healed before the next; returns the violations."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    with ClusterProcesses(folder) as cluster:
        workload = Workload(cluster, seed)
        workload.declare()
        with workload:
            workload.wait_for_confirms(30)
            for _ in range(faults):
                leader = cluster.wait_in_sync()
                other = chance.choice([one for one in cluster.members if one is not leader])
                fault = chance.choice(FAULTS)
                print(f"{fault.__name__} of {leader.name}")
                fault(workload, leader, other)
                time.sleep(chance.uniform(0.5, 1.0) * FAULT_SECONDS)
                if fault is kill:
                    workload.wait_for_confirms(1)
                cluster.heal()
                cluster.wait_in_sync()
                workload.wait_for_confirms(10)
        return check(workload.collect(), resume_seconds=10.0)


@pytest.mark.peer
def test_what_clients_were_told_holds_after_a_kill(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
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
def test_what_clients_were_told_holds_under_random_faults(tmp_path: Path) -> None:
    """`CLUSTER_SEED` and `CLUSTER_SCHEDULES` choose the first seed and how many there are."""
    first = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(10**6))
    for seed in range(first, first + int(os.environ.get("CLUSTER_SCHEDULES") or 200)):
        assert run_schedule(tmp_path / str(seed), seed, faults=3) == [], f"seed {seed}"


def publish(port: int, queue: str, *messages: str, wait: bool = True) -> None:
    """Without `wait`, nobody learns whether they are confirmed."""
    connection = connect(port)
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
    with ClusterProcesses(folder, mutant) as cluster:
        workload = Workload(cluster, 1)
        workload.declare()
        history = workload.history
        leader = cluster.wait_in_sync()
        leader.from_followers.stall(BACK)  # nobody else gets changes from here on
        if mutant == "ignore_lease":
            leader.to_etcd.stall()
            cluster.wait_for_other_leader(leader)
        if mutant in ("confirm_early", "ignore_lease"):
            publish(leader.amqp, "q", "q-1")
            history.confirm("q", "q-1", None, time.monotonic())
        elif mutant == "ignore_high_water_mark":
            publish(leader.amqp, "stream", "seen too early", wait=False)
            workload._read_from(leader.amqp, "the first reader", 1.0)
        else:
            publish(leader.amqp, "q", "a tail that nobody else gets", wait=False)
        leader.kill()
        successor = cluster.wait_for_other_leader(leader)
        publish(successor.amqp, "stream", "after")
        publish(successor.amqp, "q", "after")
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
        connection = connect(leader.amqp)
        connection.channel().queue_declare("q", durable=True, arguments=QUORUM)
        connection.channel().queue_declare("stream", durable=True, arguments=STREAM)
        leader.from_followers.stall(BACK)
        publish(leader.amqp, "stream", "not seen", wait=False)
        publish(leader.amqp, "q", "a tail that nobody else gets", wait=False)
        leader.kill()
        successor = cluster.wait_for_other_leader(leader)
        publish(successor.amqp, "stream", "after")
        cluster.heal()
        leader = cluster.wait_in_sync()
        workload = Workload(cluster, 1)
        workload._read_from(leader.amqp, "reader", 1.0)
        assert workload.history.reads == [("reader", 0, "after")]
