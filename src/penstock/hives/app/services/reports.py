"""Reports of single sensors, from the pipeline's lake: what PostgreSQL has only the sums of."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.hives.app.domain.errors import NotConfigured
from penstock.hives.app.domain.sensors import SensorReport

_FLOW: Final = "hives"
_TABLE: Final = "silver.reports"
_COLUMNS: Final = (
    *("at", "received_at", "kind", "total_in", "total_out", "delta_in", "delta_out", "quality"),
)


class Reports:
    """Read by a thread, one request at a time: a day of a fleet is a few megabytes."""

    def __init__(self, lake: Path | None) -> None:
        self._lake = lake
        self._turn = asyncio.Lock()

    async def of(
        self, serial: str, begin: datetime, end: datetime, limit: int
    ) -> list[SensorReport]:
        """The newest first."""
        if self._lake is None:
            raise NotConfigured("no lake is configured (PENSTOCK_HIVES_LAKE)")
        async with self._turn:
            return await asyncio.to_thread(_read, self._lake, serial, begin, end, limit)


def _read(
    root: Path, serial: str, begin: datetime, end: datetime, limit: int
) -> list[SensorReport]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # With the lake comes Spark's connector: for who asks for reports, and for nobody else.
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.lake.log import chosen

    table = Lake.open(root, _FLOW).table(_TABLE)
    days = begin.astimezone(UTC).date(), end.astimezone(UTC).date()
    found: list[dict[str, Any]] = []
    for file in reversed(chosen(table.log.files(), days)):
        rows = pq.read_table(
            table.folder / file.path,
            columns=list(_COLUMNS),
            filters=(pc.field("sensor") == serial)
            & (pc.field("received_at") >= begin)
            & (pc.field("received_at") < end),
            partitioning=None,
        )
        found += rows.to_pylist()
        if len(found) >= limit * 2:  # batches overlap a little in time
            break
    found.sort(key=lambda row: row["received_at"], reverse=True)
    return [SensorReport(**row) for row in found[:limit]]
