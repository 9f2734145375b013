"""Brokers with one fault each: `python mutants.py FAULT broker …`. The checker must find each."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def confirm_early() -> None:
    """Confirms do not wait for followers."""
    from penstock.cluster.in_sync_set import InSyncSet

    InSyncSet.committed = property(lambda self: self._synced)  # type: ignore[assignment,method-assign]


def ignore_lease() -> None:
    """A leader leads on, whatever the coordinator says, and shrinks the in-sync set alone."""
    from penstock.cluster.coordinator import Lease
    from penstock.server.cluster_member import ClusterMember

    recorded = ClusterMember._record

    async def record(self: Any, epoch: int, members: frozenset[str]) -> bool:
        with contextlib.suppress(OSError):
            await recorded(self, epoch, members)
        return True

    Lease.is_safe = property(lambda self: True)  # type: ignore[assignment,method-assign]
    Lease.is_over = property(lambda self: False)  # type: ignore[assignment,method-assign]
    ClusterMember._record = record  # type: ignore[method-assign]


def remove_early() -> None:
    """A silent follower leaves the in-sync set at once, before that is recorded."""
    from penstock.cluster.in_sync_set import InSyncSet

    initialize, update = InSyncSet.__init__, InSyncSet.update

    def impatient(self: Any, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options | {"timeout": 0.5})

    async def forgetful(self: Any, candidates: Any) -> bool:
        limit = self._now() - self._timeout
        self.members -= {
            node for node in self.members - {self.node} if self._healthy_at.get(node, 0) <= limit
        }
        return await update(self, candidates)

    InSyncSet.__init__ = impatient  # type: ignore[method-assign]
    InSyncSet.update = forgetful  # type: ignore[method-assign]


def keep_tail() -> None:
    """A former leader keeps what nobody else has."""
    from penstock.cluster import file_index

    def common_size(ours: tuple[int, bytes], theirs: tuple[int, bytes]) -> int:
        return min(ours[0], theirs[0])

    file_index.common_size = common_size


def ignore_high_water_mark() -> None:
    """Stream readers see what followers do not have."""
    from penstock.broker.log.log import Log

    def get(self: Log) -> int:
        return self.written_offset

    Log.synced_offset = property(get, lambda self, value: None)  # type: ignore[assignment]


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    from penstock.__main__ import main

    main()
