"""The hives as gold needs them: their zones, nights and capacities, read when they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.calendars import Calendars
from penstock.hives.steps.kpis import Opening
from penstock.hives.steps.resets import Nights
from penstock.store import Connection

Numbers = NDArray[np.int64]

_VERSION = "SELECT count(*) AS count, max(updated_at) AS at, sum(id) AS ids FROM hive"
_HIVES = "SELECT id, time_zone, reset_time, opening_hours, capacity FROM hive ORDER BY id"


@dataclass(frozen=True, slots=True)
class Places:
    version: tuple[Any, ...]
    hive: Numbers  #: in order
    capacity: Numbers  #: 0: nobody said
    nights: Mapping[int, Nights]
    calendars: Calendars
    opening: Opening

    @classmethod
    def read(cls, connection: Connection, known: Places | None) -> Places:
        """As they are now; the same object if nothing has changed."""
        row = connection.execute(_VERSION).fetchone()
        version = tuple(row.values()) if row else ()
        if known is not None and known.version == version:
            return known
        rows = connection.execute(_HIVES).fetchall()
        return cls(
            version,
            np.array([row["id"] for row in rows], np.int64),
            np.array([row["capacity"] or 0 for row in rows], np.int64),
            {row["id"]: Nights.from_row(row) for row in rows},
            Calendars({row["id"]: row["time_zone"] for row in rows}),
            Opening({row["id"]: row["opening_hours"] for row in rows}),
        )

    def capacity_of(self, hives: Numbers) -> Numbers:
        return self.capacity[np.searchsorted(self.hive, hives)]
