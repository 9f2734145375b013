"""What a batch has told, as gold takes it: little, whatever the size of the batch.

Spark brings the rows of silver down to these; they come to the driver as Arrow, at most a row for
each sensor and for each hive and slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.hives.steps.occupancy import NOTHING, Counts
from penstock.hives.steps.states import STATE

_UTC: Final = pa.timestamp("us", "UTC")
#: The last status of each sensor: table `sensor_status`.
STATUSES: Final = pa.schema(
    [
        ("sensor_id", pa.int64()),
        ("received_at", _UTC),
        ("started_at", _UTC),
        ("battery_mv", pa.int32()),
        ("sensor_state", pa.int32()),
        ("discarded_events", pa.int32()),
        ("signal_dbm", pa.int32()),
        ("firmware", pa.string()),
        ("configuration_id", pa.int64()),
        ("raw", pa.binary()),
    ]
)
#: How many there were: table `dead_letter_count`.
DEAD_LETTERS: Final = pa.schema(
    [
        ("day", pa.date32()),
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("count", pa.int64()),
        ("last_at", _UTC),
    ]
)
NO_COUNTS: Final = Counts(NOTHING, NOTHING, NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class Facts:
    counts: Counts = NO_COUNTS
    states: pa.Table = field(default_factory=STATE.empty_table)
    statuses: pa.Table = field(default_factory=STATUSES.empty_table)
    dead_letters: pa.Table = field(default_factory=DEAD_LETTERS.empty_table)
    rows: int = 0  #: messages they were made from

    @property
    def clock(self) -> int:
        """When the last of it came: microseconds; 0, if nothing did."""
        columns = (self.states["received_at"], self.statuses["received_at"])
        return max(pc.max(column.cast(pa.int64())).as_py() or 0 for column in columns)
