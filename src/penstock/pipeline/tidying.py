"""Compaction now and then, beside a query that runs for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.core.errors import ResourceLocked
from penstock.core.logs import get_logger
from penstock.pipeline.claims import Claim
from penstock.pipeline.compaction import compact
from penstock.pipeline.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)


@contextmanager
def tidying(spark: SparkSession, place: Place, every: float) -> Iterator[None]:
    """For the length of the block, compact the flow's tables every so many seconds; 0: never."""
    if not every:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(
        target=_tidy, args=(spark, place, every, end), name="tidying", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        # One that is at work is not waited for: cut short, it has changed nothing.
        end.set()


def _tidy(spark: SparkSession, place: Place, every: float, end: threading.Event) -> None:
    while not end.wait(every):
        try:
            with place.claims.hold(Claim.FILES, wait=False):
                compact(spark, place.lake)
        except ResourceLocked:
            continue  # somebody does it, or replays: next time
        except Exception as error:
            if not end.is_set():
                log.warning("compaction failed", flow=place.flow, reason=str(error).split("\n")[0])
