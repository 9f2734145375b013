"""Random schedules of faults, each from its seed: what clients were told must hold.

    PYTHONPATH=.:packages/penstock python -m tests.integration.cluster.schedules --results FILE

runs 200 and appends a line for each to the file: seed, seconds, coordinator, network, faults,
violations. It continues after the last seed in the file, so a run can be interrupted at any time.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .checker import check
from .namespaces import NamespaceLinks, can_use_namespaces
from .processes import LEASE_SECONDS, ClusterProcesses, MemberProcess, can_mount
from .workload import Workload

#: Longer than a lease and a follower's timeout.
FAULT_SECONDS: Final = 2.5 * LEASE_SECONDS
FAULTS_PER_SCHEDULE: Final = 3

Fault = Callable[[Workload, MemberProcess, MemberProcess], None]


def kill(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    workload.history.deaths.append(time.monotonic())
    leader.kill()


def pause(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.signal(signal.SIGSTOP)


def cut_off_completely(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.links.cut_off_coordinator()
    cut_off_from_followers(workload, leader, other)


def cut_off_from_coordinator(
    workload: Workload, leader: MemberProcess, other: MemberProcess
) -> None:
    leader.links.cut_off_coordinator()


def lose_coordinator(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    for member in workload.cluster.members:
        member.links.cut_off_coordinator()


def cut_off_from_followers(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.links.lose_changes()
    leader.links.lose_acknowledgements()


def lose_acknowledgements(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.links.lose_acknowledgements()


def lose_changes(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.links.lose_changes()


def cut_off_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    """From the leader only."""
    assert isinstance(other.links, NamespaceLinks)
    other.links.cut_off_from(leader.name)


def slow_down(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.links.slow_down()


def kill_twice(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    """Two failovers, one after the other."""
    kill(workload, leader, other)
    workload.wait_for_confirms(1)
    kill(workload, workload.cluster.wait_in_sync(2), other)


def restart_in_turn(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    """As for an update: the followers, then the leader."""
    for member in sorted(workload.cluster.members, key=lambda one: one is leader):
        member.stop()
        member.start()
        workload.cluster.wait_in_sync()


def promote_in_partition(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    """By hand; it may be refused."""
    cut_off_completely(workload, leader, other)
    with contextlib.suppress(OSError):
        other.request("/api/cluster/promote", {"force": False})


def join_empty(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    """A member loses its disk and joins under load."""
    other.kill()
    shutil.rmtree(other.data)
    other.start()


def kill_all(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    for member in workload.cluster.members:
        member.kill()


def kill_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    other.kill()


def pause_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    other.signal(signal.SIGSTOP)


def fill_disk(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.fill_disk()


def fill_disk_of_follower(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    other.fill_disk()


def jump_ahead(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.jump_clock(3600)
    workload.cluster.jump_coordinator_clock(3600)


def jump_back(workload: Workload, leader: MemberProcess, other: MemberProcess) -> None:
    leader.jump_clock(-3600)
    other.jump_clock(60)
    workload.cluster.jump_coordinator_clock(-3600)


FAULTS: Final[list[Fault]] = [
    kill,
    pause,
    cut_off_completely,
    cut_off_from_coordinator,
    lose_coordinator,
    cut_off_from_followers,
    lose_acknowledgements,
    lose_changes,
    slow_down,
    kill_all,
    kill_follower,
    pause_follower,
    fill_disk,
    fill_disk_of_follower,
    jump_ahead,
    jump_back,
    kill_twice,
    promote_in_partition,
    join_empty,
    cut_off_follower,
    restart_in_turn,
]


def faults_of(chance: random.Random, disks: bool, namespaces: bool) -> list[Fault]:
    """The faults of a schedule. Disks are filled where they can be mounted, single followers are
    cut off in namespaces."""
    left_out = set() if namespaces else {cut_off_follower}
    if not disks:
        left_out |= {fill_disk, fill_disk_of_follower}
    possible = [one for one in FAULTS if one not in left_out]
    return [chance.choice(possible) for _ in range(FAULTS_PER_SCHEDULE)]


def coordinator_of(seed: int) -> str:
    return "postgresql" if seed % 2 else "etcd"


def has_namespaces(seed: int) -> bool:
    """Half of the schedules, where the machine allows it."""
    return seed // 2 % 2 == 0 and can_use_namespaces()


def run_schedule(folder: Path, seed: int) -> list[str]:
    """Random faults, one after another, each healed before the next; returns the violations."""
    chance = random.Random(seed)
    disks, namespaces = can_mount(), has_namespaces(seed)
    print(f"seed {seed}", flush=True)
    with ClusterProcesses(
        folder, coordinator=coordinator_of(seed), disks=disks, namespaces=namespaces
    ) as cluster:
        workload = Workload(cluster, seed)
        workload.declare()
        with workload:
            workload.wait_for_confirms(30)
            for fault in faults_of(chance, disks, namespaces):
                leader = cluster.wait_in_sync()
                other = chance.choice([one for one in cluster.members if one is not leader])
                print(f"{fault.__name__} of {leader.name}", flush=True)
                fault(workload, leader, other)
                time.sleep(chance.uniform(0.5, 1.0) * FAULT_SECONDS)
                if fault in (kill, kill_twice):
                    workload.wait_for_confirms(1)
                cluster.heal()
                cluster.wait_in_sync()
                workload.wait_for_confirms(10)
        return check(workload.collect(), resume_seconds=10.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="How many the file is to have.")
    parser.add_argument("--seed", type=int, default=1, help="The first seed of a new file.")
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the members end with it
    results: Path = options.results
    done = results.read_text().splitlines() if results.exists() else []
    seed = int(done[-1].split()[0]) + 1 if done else options.seed
    failed = 0
    for current in range(seed, seed + options.count - len(done)):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="schedule-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)  # PostgreSQL runs as another user when this runs as root
            try:
                found = run_schedule(Path(folder), current)
            except AssertionError as error:  # no leader, no confirms
                found = [str(error).partition("\n")[0]]
                print(error, flush=True)
            if found:
                kept = results.with_name(f"{results.name}-{current}")
                subprocess.run(["cp", "-r", "--sparse=always", folder, str(kept)], check=False)
        failed += bool(found)
        namespaces = has_namespaces(current)
        chosen = faults_of(random.Random(current), can_mount(), namespaces)
        names = ",".join(one.__name__ for one in chosen)
        network = "namespaces" if namespaces else "proxies"
        words = "; ".join(found) or "ok"
        seconds = time.monotonic() - started
        with results.open("a") as file:
            file.write(
                f"{current} {seconds:.0f}s {coordinator_of(current)} {network} {names} {words}\n"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
