"""Report v2, by the column: the rows of a batch that are of this version."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.columns.bodies import Bodies, Bytes, Rows
from penstock.hives.sensors.columns.reasons import Reasons
from penstock.hives.sensors.messages.reason import Reason
from penstock.hives.sensors.messages.report2 import CHECKED, CRC_PRESET, LENGTH, QUARTER
from penstock.hives.sensors.messages.report_type import ReportType

Numbers = NDArray[np.int64]

LAYOUT: Final = np.dtype(
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
_KNOWN: Final = np.isin(np.arange(256), list(ReportType))
#: What each value of the byte shifted out does to the register.
_CRC: Final = np.array([binascii.crc_hqx(bytes([byte]), 0) for byte in range(256)], np.uint16)
_QUARTER: Final = int(QUARTER.total_seconds())
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Reports2:
    type: Numbers
    total_in: Numbers
    total_out: Numbers
    device_time: Numbers
    device_utc: Numbers
    counter: Numbers
    diff_in: Numbers
    diff_out: Numbers
    flags: Numbers


def read_reports2(frames: Bodies, rows: Rows, reasons: Reasons) -> Reports2:
    """The fields of these rows; those that are damaged are given their reasons."""
    heads = frames.heads(LENGTH, rows)
    fields = heads.view(LAYOUT).reshape(-1)
    reasons.give_rows(Reason.BAD_CHECKSUM, rows[fields["checksum"] != crc(heads[:, :CHECKED])])
    reasons.give_rows(Reason.UNKNOWN_TYPE, rows[~_KNOWN[fields["type"]]])

    def numbers(name: str) -> Numbers:
        return fields[name].astype(np.int64)

    utc = numbers("time")
    return Reports2(
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


def crc(heads: Bytes) -> NDArray[np.uint16]:
    """The checksum of every row."""
    register = np.full(len(heads), CRC_PRESET, np.uint16)
    for byte in heads.T:
        register = register << 8 ^ _CRC[register >> 8 ^ byte]
    return register
