"""What every driver and virtual host of one broker shares, passed in rather than reached for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.broker.buckets import BucketPool
from penstock.broker.log.committer import Committer
from penstock.broker.spool import Spools
from penstock.broker.write_batch import WriteBatch
from penstock.core.config import BrokerSettings
from penstock.core.metrics import Metrics


@dataclass(slots=True)
class Kernel:
    loop: asyncio.AbstractEventLoop
    settings: BrokerSettings
    directory: Path  #: where logs go
    committer: Committer
    write_batch: WriteBatch
    pool: BucketPool
    spools: Spools
    metrics: Metrics
    report: Callable[[str], None]  #: damage found on disk, for the operator
