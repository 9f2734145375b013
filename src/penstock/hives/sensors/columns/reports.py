"""Reports of both versions, by the column.

A batch may mix versions, byte orders and firmware that does not add 32. What v1 does not have is
null in its rows: the counter, the diffs, the flags, a time in UTC.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.hives.sensors.columns.bodies import Bodies, Bytes, Chosen, Mask, Rows, as_mask
from penstock.hives.sensors.columns.clock import read_clock
from penstock.hives.sensors.columns.reasons import Reasons, column
from penstock.hives.sensors.columns.reports2 import Numbers, read_reports2
from penstock.hives.sensors.messages import report, report2
from penstock.hives.sensors.messages.profile import ByteOrder
from penstock.hives.sensors.messages.reason import Reason
from penstock.hives.sensors.messages.report_type import ReportType

REPORTS: Final = pa.schema(
    [
        ("reason", pa.string()),  # why it is none; null when it is one
        ("version", pa.int16()),
        ("type", pa.int16()),  # as on the wire: 0x20, 0x21, 0xFF
        ("total_in", pa.int64()),
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # wall clock at the device; null if it has none
        ("device_utc", pa.timestamp("us", "UTC")),  # only v2 knows
        ("counter", pa.int32()),
        ("diff_in", pa.int32()),
        ("diff_out", pa.int32()),
        ("flags", pa.int16()),
        ("proven_order", pa.string()),  # what a start-up report of v1 proves
    ]
)

_KNOWN_TYPE: Final = np.isin(np.arange(256), list(ReportType))
_ORDERS: Final = pa.array([ByteOrder.BIG.value, ByteOrder.LITTLE.value], pa.string())
_START_BIG: Final = 0x00200020
_START_LITTLE: Final = 0x20002000


def decode_reports(
    bodies: pa.Array | pa.ChunkedArray, *, little: Chosen = None, plain: Chosen = None
) -> pa.RecordBatch:
    """A row for each body. `little` marks little-endian sensors, `plain` those that add no 32."""
    frames = Bodies.of(bodies)
    reasons = Reasons.by_length(frames, report.DATA, report.LONGEST)
    heads = frames.heads(report.DATA)
    second = (frames.lengths == report2.LENGTH) & (heads[:, 0] == report2.VERSION)
    first = ~second
    reasons.give(Reason.UNKNOWN_TYPE, first & ~_KNOWN_TYPE[heads[:, 14]])

    plain_rows = as_mask(plain, len(frames))
    plus = report.PLUS if plain_rows is None else np.where(plain_rows, 0, report.PLUS)
    total_in, total_out = _totals(heads, as_mask(little, len(frames)), plus)
    device_time, no_clock = read_clock(heads[:, 8:14], plus)
    kind = heads[:, 14].astype(np.int16)
    version = np.ones(len(frames), np.int16)

    rows = np.flatnonzero(second)
    later = read_reports2(frames, rows, reasons)
    if len(rows):
        version[rows] = report2.VERSION
        kind[rows] = later.type
        total_in[rows], total_out[rows] = later.total_in, later.total_out
        device_time[rows], no_clock[rows] = later.device_time, False

    bad = reasons.bad
    only_second = bad | first
    columns = [
        column(version, pa.int16(), bad),
        column(kind, pa.int16(), bad),
        column(total_in, pa.int64(), bad),
        column(total_out, pa.int64(), bad),
        column(device_time, pa.timestamp("us"), bad | no_clock),
    ]
    for name in ("device_utc", "counter", "diff_in", "diff_out", "flags"):
        columns.append(_sparse(name, rows, getattr(later, name), only_second))
    no_proof = bad | second if plain_rows is None else bad | second | plain_rows
    columns.append(_proven_order(heads, no_proof))
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=REPORTS)


def _totals(heads: Bytes, little: Mask | None, plus: int | Numbers) -> tuple[Numbers, Numbers]:
    totals = []
    for at in (4, 6):
        high, low = heads[:, at], heads[:, at + 1]
        if little is not None:
            high, low = np.where(little, low, high), np.where(little, high, low)
        wire = high.astype(np.int64) << 8 | low
        totals.append((wire - plus) & 0xFFFF)
    return totals[0], totals[1]


def _sparse(name: str, rows: Rows, values: Numbers, absent: Mask) -> pa.Array:
    kind = REPORTS.field(name).type
    if not len(rows):
        return pa.nulls(len(absent), kind)
    spread = np.zeros(len(absent), np.int64)
    spread[rows] = values
    return column(spread, kind, absent)


def _proven_order(heads: Bytes, absent: Mask) -> pa.Array:
    totals = np.ascontiguousarray(heads[:, 4:8]).view(">u4").reshape(-1)
    little = totals == _START_LITTLE
    proven = ((totals == _START_BIG) | little) & ~absent
    if not proven.any():
        return pa.nulls(len(absent), pa.string())
    return _ORDERS.take(pa.array(little.astype(np.int8), mask=~proven))
