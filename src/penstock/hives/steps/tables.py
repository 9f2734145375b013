"""Silver's tables, by column: what is kept of messages once they are decoded."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.hives.steps.decoded import DECODED, LETTER, STATUS

_WHERE: Final = [DECODED.field(name) for name in ("stream", "offset", "received_at", "sensor")]
_HIVE: Final = DECODED.field("hive_id")
_RAW: Final = DECODED.field("raw")
_LAST: Final = [("day", pa.date32()), ("batch", pa.int64())]
#: What counts people, and what each adds.
REPORTS: Final = pa.schema(
    [
        *(*_WHERE, _HIVE),
        *(DECODED.field(name) for name in ("kind", "report_type", "device_time", "at", "quality")),
        *(DECODED.field(name) for name in ("counter", "distance", "total_in", "total_out")),
        *((name, pa.int32()) for name in ("delta_in", "delta_out", "missed")),
        *(_RAW, *_LAST),
    ]
)
STATUSES: Final = pa.schema([*_WHERE, _HIVE, *STATUS, _RAW, *_LAST])
DEAD_LETTERS: Final = pa.schema([*_WHERE, *LETTER, _RAW, *_LAST])
#: In the order in which they are entered.
TABLES: Final = {
    "silver.reports": REPORTS,
    "silver.statuses": STATUSES,
    "silver.dead_letters": DEAD_LETTERS,
}
