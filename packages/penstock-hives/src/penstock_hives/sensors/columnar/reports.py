"""Columnar decoder for reports of both versions.

A batch may mix versions, byte orders and firmware that does not add 32. Fields that version 1 does
not have are null in its rows: counter, diffs, flags, time in UTC.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock_hives.arrays import Bytes, Flags, Numbers
from penstock_hives.sensors.columnar.frames import (
    FrameBodies,
    RejectReasons,
    RowSelection,
    arrow_column,
    as_mask,
)
from penstock_hives.sensors.protocol import report
from penstock_hives.sensors.protocol.frame import ByteOrder, RejectReason
from penstock_hives.sensors.protocol.report import (
    CRC_PRESET,
    QUARTER_HOUR,
    REPORT_V2_CHECKED_LENGTH,
    REPORT_V2_LENGTH,
    REPORT_V2_VERSION,
    ReportType,
)

REPORT_SCHEMA: Final = pa.schema(
    [
        ("reason", pa.string()),  # of a rejected frame
        ("version", pa.int16()),
        ("type", pa.int16()),  # as on the wire: 0x20, 0x21, 0xFF
        ("total_in", pa.int64()),
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # local time of the device; null if not valid
        ("device_utc", pa.timestamp("us", "UTC")),  # v2 only
        ("counter", pa.int32()),
        ("diff_in", pa.int32()),
        ("diff_out", pa.int32()),
        ("flags", pa.int16()),
        ("proven_order", pa.string()),  # byte order proved by a start-up report v1
    ]
)

_KNOWN_TYPE: Final = np.isin(np.arange(256), list(ReportType))
_ORDERS: Final = pa.array([ByteOrder.BIG.value, ByteOrder.LITTLE.value], pa.string())
_START_BIG: Final = 0x00200020
_START_LITTLE: Final = 0x20002000


def decode_reports(
    bodies: pa.Array | pa.ChunkedArray, *, little: RowSelection = None, plain: RowSelection = None
) -> pa.RecordBatch:
    """A row for each body. `little` marks little-endian sensors, `plain` those that add no 32."""
    frames = FrameBodies.of(bodies)
    reasons = RejectReasons.by_length(frames, report.REPORT_MIN_LENGTH, report.REPORT_MAX_LENGTH)
    heads = frames.heads(report.REPORT_MIN_LENGTH)
    second = (frames.lengths == REPORT_V2_LENGTH) & (heads[:, 0] == REPORT_V2_VERSION)
    first = ~second
    reasons.set(RejectReason.UNKNOWN_TYPE, first & ~_KNOWN_TYPE[heads[:, 14]])

    plain_rows = as_mask(plain, len(frames))
    plus = (
        report.FIELD_OFFSET if plain_rows is None else np.where(plain_rows, 0, report.FIELD_OFFSET)
    )
    total_in, total_out = _totals(heads, as_mask(little, len(frames)), plus)
    device_time, no_clock = decode_clock(heads[:, 8:14], plus)
    kind = heads[:, 14].astype(np.int16)
    version = np.ones(len(frames), np.int16)

    rows = np.flatnonzero(second)
    later = decode_reports_v2(frames, rows, reasons)
    if len(rows):
        version[rows] = REPORT_V2_VERSION
        kind[rows] = later.type
        total_in[rows], total_out[rows] = later.total_in, later.total_out
        device_time[rows], no_clock[rows] = later.device_time, False

    bad = reasons.bad
    only_second = bad | first
    columns = [
        arrow_column(version, pa.int16(), bad),
        arrow_column(kind, pa.int16(), bad),
        arrow_column(total_in, pa.int64(), bad),
        arrow_column(total_out, pa.int64(), bad),
        arrow_column(device_time, pa.timestamp("us"), bad | no_clock),
    ]
    for name in ("device_utc", "counter", "diff_in", "diff_out", "flags"):
        columns.append(_sparse(name, rows, getattr(later, name), only_second))
    no_proof = bad | second if plain_rows is None else bad | second | plain_rows
    columns.append(_proven_order(heads, no_proof))
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=REPORT_SCHEMA)


def _totals(heads: Bytes, little: Flags | None, plus: int | Numbers) -> tuple[Numbers, Numbers]:
    totals = []
    for at in (4, 6):
        high, low = heads[:, at], heads[:, at + 1]
        if little is not None:
            high, low = np.where(little, low, high), np.where(little, high, low)
        wire = high.astype(np.int64) << 8 | low
        totals.append((wire - plus) & 0xFFFF)
    return totals[0], totals[1]


def _sparse(name: str, rows: Numbers, values: Numbers, absent: Flags) -> pa.Array:
    kind = REPORT_SCHEMA.field(name).type
    if not len(rows):
        return pa.nulls(len(absent), kind)
    spread = np.zeros(len(absent), np.int64)
    spread[rows] = values
    return arrow_column(spread, kind, absent)


def _proven_order(heads: Bytes, absent: Flags) -> pa.Array:
    totals = np.ascontiguousarray(heads[:, 4:8]).view(">u4").reshape(-1)
    little = totals == _START_LITTLE
    proven = ((totals == _START_BIG) | little) & ~absent
    if not proven.any():
        return pa.nulls(len(absent), pa.string())
    return _ORDERS.take(pa.array(little.astype(np.int8), mask=~proven))


_YEARS: Final = 100
_MONTHS: Final = np.arange("2000-01", "2100-02", dtype="datetime64[M]").astype("datetime64[D]")
#: First day since 1970 and number of days of each month of the century.
_FIRST_DAY: Final = _MONTHS[:-1].astype(np.int64)
_DAYS: Final = np.diff(_MONTHS).astype(np.uint8)


def decode_clock(date: Bytes, plus: int | Numbers) -> tuple[Numbers, Flags]:
    """The times, and which rows have an impossible one."""
    # A byte under the offset wraps to a value that no field of a date allows.
    fields = date.T - np.asarray(plus, np.uint8)
    year, month, day, hour, minute, second = fields
    month0, day0 = month - np.uint8(1), day - np.uint8(1)
    possible = (year < _YEARS) & (month0 < 12) & (hour < 24) & (minute < 60) & (second < 60)
    index = np.where(possible, year.astype(np.int16) * 12 + month0, 0)
    possible &= day0 < _DAYS[index]
    days = _FIRST_DAY[index] + day0
    seconds = days * 86_400 + hour * np.int64(3600) + minute * np.int64(60) + second
    return seconds * 1_000_000, ~possible


REPORT_V2_LAYOUT: Final = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("counter", ">u2"),
        ("diff_in", ">u2"),
        ("diff_out", ">u2"),
        ("total_in", ">u4"),
        ("total_out", ">u4"),
        ("time", ">u4"),
        ("utc_offset", "i1"),
        ("flags", "u1"),
        ("checksum", ">u2"),
    ]
)
#: The effect of each byte on the register.
_CRC: Final = np.array([binascii.crc_hqx(bytes([byte]), 0) for byte in range(256)], np.uint16)
_QUARTER: Final = int(QUARTER_HOUR.total_seconds())
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReportV2Columns:
    type: Numbers
    total_in: Numbers
    total_out: Numbers
    device_time: Numbers
    device_utc: Numbers
    counter: Numbers
    diff_in: Numbers
    diff_out: Numbers
    flags: Numbers


def decode_reports_v2(
    frames: FrameBodies, rows: Numbers, reasons: RejectReasons
) -> ReportV2Columns:
    """The fields of these rows; sets the reasons of damaged ones."""
    heads = frames.heads(REPORT_V2_LENGTH, rows)
    fields = heads.view(REPORT_V2_LAYOUT).reshape(-1)
    reasons.set_rows(
        RejectReason.BAD_CHECKSUM,
        rows[fields["checksum"] != crc16(heads[:, :REPORT_V2_CHECKED_LENGTH])],
    )
    reasons.set_rows(RejectReason.UNKNOWN_TYPE, rows[~_KNOWN_TYPE[fields["type"]]])

    def numbers(name: str) -> Numbers:
        return fields[name].astype(np.int64)

    utc = numbers("time")
    return ReportV2Columns(
        type=numbers("type"),
        total_in=numbers("total_in"),
        total_out=numbers("total_out"),
        device_time=(utc + numbers("utc_offset") * _QUARTER) * _MICROS,
        device_utc=utc * _MICROS,
        counter=numbers("counter"),
        diff_in=numbers("diff_in"),
        diff_out=numbers("diff_out"),
        flags=numbers("flags"),
    )


def crc16(heads: Bytes) -> NDArray[np.uint16]:
    register = np.full(len(heads), CRC_PRESET, np.uint16)
    for byte in heads.T:
        register = register << 8 ^ _CRC[register >> 8 ^ byte]
    return register
