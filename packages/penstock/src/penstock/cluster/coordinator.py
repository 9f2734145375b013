"""Who leads: what members ask of the system that decides it (etcd or PostgreSQL).

The coordinator keeps, for each cluster: its id and secret, the leader with its epoch under a lease,
and the in-sync set. Only a member of the in-sync set can become leader; only the current leader can
change the set. Methods raise OSError if the coordinator cannot be reached, and PermissionError if
it refuses this member's user.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    node: str
    address: str  #: for followers
    addresses: tuple[str, ...]  #: for clients

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "address": self.address, "addresses": list(self.addresses)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LeaderRecord:
        return cls(value["node"], value["address"], tuple(value["addresses"]))


@dataclass(frozen=True, slots=True)
class ClusterView:
    leader: LeaderRecord | None
    epoch: int
    in_sync: frozenset[str] | None  #: None before the first leader


@dataclass(frozen=True, slots=True)
class Leadership:
    epoch: int
    in_sync: frozenset[str]


class Coordinator(Protocol):
    async def identify(self, known: str) -> tuple[str, str]:
        """The cluster's id and secret, made by the first member that asks. `known` is the id in the
        member's data; raises ConfigurationError if the coordinator does not know that cluster."""

    async def view(self) -> ClusterView: ...

    async def campaign(self, record: LeaderRecord) -> Leadership | None:
        """Lead if nobody does, and this member is in sync; the former leader leaves the set."""

    async def renew(self, epoch: int) -> bool:
        """Returns False if the leadership is lost."""

    async def record_in_sync(self, epoch: int, members: frozenset[str]) -> bool:
        """Returns False if the leadership is lost."""

    async def resign(self, epoch: int) -> None:
        """Another may lead at once."""

    async def force(self) -> bool:
        """While nobody leads: make this member the only one in sync, whatever it lacks; returns
        False if somebody leads."""


def coordinator_threads() -> ThreadPoolExecutor:
    """Threads for requests to a coordinator: the renewal of a lease must not wait for disks."""
    return ThreadPoolExecutor(3, thread_name_prefix="penstock-coordinator")


def lease_clock() -> float:
    """Seconds that pass also while the process or the machine is suspended, and never jump."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """How long this member may act as leader without hearing from the coordinator.

    Counted from before the renewal was sent, so that the coordinator's lease ends later.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renewed_at = lease_clock()
        self.lost = False

    def renewed(self, sent_at: float) -> None:
        self.renewed_at = max(self.renewed_at, sent_at)

    @property
    def age(self) -> float:
        return lease_clock() - self.renewed_at

    @property
    def is_safe(self) -> bool:
        """Confirms and deliveries may leave this member."""
        return not self.lost and self.age < self.seconds * 2 / 3

    @property
    def is_over(self) -> bool:
        return self.lost or self.age >= self.seconds
