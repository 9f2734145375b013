"""Services that drivers and virtual hosts of one broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.broker.buckets import BucketPool
from penstock.broker.inflight_pager import InflightPager
from penstock.broker.log.committer import Committer
from penstock.broker.spool import Spools
from penstock.broker.tiered_storage import TieredStorage
from penstock.broker.write_batch import WriteBatch
from penstock.core.config import BrokerSettings
from penstock.core.metrics import Metrics
from penstock.core.timer_wheel import TimerWheel

#: The part of the memory budget that is sent between two sweeps of the pager. Unacknowledged
#: messages take at most twice as much.
INFLIGHT_SHARE: Final = 1 / 8


@dataclass(slots=True)
class Kernel:
    loop: asyncio.AbstractEventLoop
    settings: BrokerSettings
    directory: Path  #: of logs
    committer: Committer
    write_batch: WriteBatch
    pool: BucketPool
    spools: Spools
    metrics: Metrics
    report: Callable[[str], None]  #: reports corruption to the operator
    tiered_storage: TieredStorage | None = None
    timers: TimerWheel = field(init=False)  #: of connections
    inflight_pager: InflightPager = field(init=False)

    def __post_init__(self) -> None:
        self.timers = TimerWheel(self.loop)
        interval = int(self.pool.budget * INFLIGHT_SHARE)
        self.inflight_pager = InflightPager(self.write_batch, self.metrics, interval)
        self.write_batch.after_flush = self.inflight_pager.check

    def confirms_in_sync(self, arguments: dict[str, Any]) -> bool:
        """Whether a queue's publishers are confirmed when all in-sync members have the message.

        In a cluster, quorum queues and streams do so unless declared otherwise.
        """
        if not self.committer.is_replicated:
            return False
        replicated = arguments.get("x-queue-type") in ("quorum", "stream")
        default = "in-sync" if replicated else self.settings.cluster.confirm_policy
        return bool(arguments.get("x-confirm-policy", default) == "in-sync")
