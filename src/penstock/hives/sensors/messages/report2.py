"""Report v2, as we propose it: what v1 lacks, in 24 bytes.

    0 u8  version = 2      4 u16 diff in     12 u32 total out     21 u8  flags
    1 u8  type             6 u16 diff out    16 u32 Unix time     22 u16 CRC of bytes 0 to 21
    2 u16 message counter  8 u32 total in    20 i8  UTC offset, quarter hours

Always big-endian, nothing added. The types are v1's. The counter tells losses, type START tells
restarts, the offset tells the zone; the checksum is CRC-16/CCITT with the register preset to ones
(the check value of "123456789" is 0x29B1). All bits of the flags are still free.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.hives.sensors.messages.frame import check_length, pack
from penstock.hives.sensors.messages.reason import MalformedFrame, Reason
from penstock.hives.sensors.messages.report_type import ReportType, read_type

VERSION: Final = 2
LENGTH: Final = 24
#: What the checksum covers.
CHECKED: Final = LENGTH - 2
CRC_PRESET: Final = 0xFFFF
QUARTER: Final = timedelta(minutes=15)
_LAYOUT: Final = ">BBHHHIIIbB"


@dataclass(frozen=True, slots=True)
class Report2:
    """Totals that do not wrap in the life of a device, and diffs as v1's should have been."""

    type: ReportType
    counter: int  #: of messages sent, modulo 65536
    diff_in: int
    diff_out: int
    total_in: int
    total_out: int
    time: int  #: Unix seconds
    utc_offset: int  #: quarter hours east of Greenwich
    flags: int = 0

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    @property
    def device_time(self) -> datetime:
        """The wall clock at the device, as a report v1 would have it."""
        return self.at.replace(tzinfo=None) + QUARTER * self.utc_offset

    def encode(self) -> bytes:
        head = pack(
            *(_LAYOUT, f"{self}", VERSION, self.type, self.counter, self.diff_in, self.diff_out),
            *(self.total_in, self.total_out, self.time, self.utc_offset, self.flags),
        )
        return head + checksum(head).to_bytes(2, "big")

    @classmethod
    def decode(cls, body: bytes) -> Report2:
        check_length(body, LENGTH, LENGTH, "a report of version 2")
        if body[0] != VERSION:
            raise MalformedFrame(Reason.UNKNOWN_VERSION, f"a report of version {body[0]}")
        told, found = int.from_bytes(body[CHECKED:], "big"), checksum(body[:CHECKED])
        if told != found:
            raise MalformedFrame(Reason.BAD_CHECKSUM, f"0x{told:04x}, the bytes give 0x{found:04x}")
        kind = read_type(body[1])
        return cls(kind, *struct.unpack_from(_LAYOUT, body)[2:])


def looks_like_report2(body: bytes) -> bool:
    return len(body) == LENGTH and body[0] == VERSION


def checksum(data: bytes) -> int:
    return binascii.crc_hqx(data, CRC_PRESET)
