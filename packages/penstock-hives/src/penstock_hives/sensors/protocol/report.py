"""Reports of counter totals: version 1, version 2, and the choice between them.

Version 1 has fifteen bytes of data, big-endian unless the firmware profile says otherwise; devices
pad to 59 bytes. Counters and dates have 32 added; the type has not. The two *diff* fields repeat
the totals, because of a firmware bug, and are ignored. An impossible date (a byte under 32, June
31) decodes as no `device_time`; the time of receipt is used instead. The time is local time without
a zone.

Version 2 has 24 bytes, always big-endian, nothing added:

    0 u8  version = 2      4 u16 diff in     12 u32 total out     21 u8  flags
    1 u8  type             6 u16 diff out    16 u32 Unix time     22 u16 CRC of bytes 0 to 21
    2 u16 message counter  8 u32 total in    20 i8  UTC offset, quarter hours

The message counter shows lost messages, type START shows restarts. The checksum is CRC-16/CCITT
with initial value 0xFFFF (the check value of "123456789" is 0x29B1). No flag is defined yet.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock_hives.sensors.protocol.frame import (
    ByteOrder,
    FirmwareProfile,
    MalformedFrame,
    RejectReason,
    check_length,
    pack_fields,
)

#: The bytes that are used, and the length that devices send.
REPORT_MIN_LENGTH: Final = 15
REPORT_NOMINAL_LENGTH: Final = 59
#: Firmware may pad up to this length; longer messages are on the wrong topic.
REPORT_MAX_LENGTH: Final = 255
FIELD_OFFSET: Final = 32
BASE_YEAR: Final = 2000
#: Follows the type; not checked.
_FILLER: Final = 0xFF


@dataclass(frozen=True, slots=True)
class ReportV1:
    """Totals since the device started, modulo its wrap point."""

    type: ReportType
    total_in: int
    total_out: int
    device_time: datetime | None  #: local, without a zone

    def encode(self, profile: FirmwareProfile, length: int = REPORT_NOMINAL_LENGTH) -> bytes:
        """As devices do: totals plus 32 wrap at sixteen bits."""
        if not REPORT_MIN_LENGTH <= length <= REPORT_MAX_LENGTH:
            raise PreconditionFailed(
                f"a report has {REPORT_MIN_LENGTH} to {REPORT_MAX_LENGTH} bytes, not {length}"
            )
        if not (0 <= self.total_in <= 0xFFFF and 0 <= self.total_out <= 0xFFFF):
            raise PreconditionFailed(f"{self} cannot be encoded: totals have sixteen bits")
        plus = FIELD_OFFSET if profile.plus_32 else 0
        totals = [(total + plus) & 0xFFFF for total in (self.total_in, self.total_out)]
        order = profile.byte_order.sign
        counts = struct.pack(f"{order}HHHH", *totals, *totals)
        body = counts + _encode_time(self.device_time, plus) + bytes((self.type, _FILLER))
        return body[:length].ljust(length, b"\x00")

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> ReportV1:
        check_length(body, REPORT_MIN_LENGTH, REPORT_MAX_LENGTH, "a report")
        kind = parse_report_type(body[14])
        plus = FIELD_OFFSET if profile.plus_32 else 0
        wire_in, wire_out = struct.unpack_from(f"{profile.byte_order.sign}HH", body, 4)
        return cls(
            kind,
            (wire_in - plus) & 0xFFFF,
            (wire_out - plus) & 0xFFFF,
            _decode_time(body[8:14], plus),
        )


def _encode_time(time: datetime | None, plus: int) -> bytes:
    if time is None:
        return bytes(6)
    if not BASE_YEAR <= time.year < BASE_YEAR + 100:
        raise PreconditionFailed(f"a report has two digits for the year, too few for {time.year}")
    date = (time.year - BASE_YEAR, time.month, time.day)
    return bytes(part + plus for part in (*date, time.hour, time.minute, time.second))


def _decode_time(date: bytes, plus: int) -> datetime | None:
    year, month, day, hour, minute, second = (byte - plus for byte in date)
    if not 0 <= year < 100:
        return None
    try:
        return datetime(BASE_YEAR + year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        return None


def decode_report(body: bytes, profile: FirmwareProfile) -> ReportV1 | ReportV2:
    """Either version: v2 has its version, and no v1 device sends frames of its length."""
    if is_report_v2(body):
        return ReportV2.decode(body)
    return ReportV1.decode(body, profile)


def proven_byte_order(body: bytes) -> ByteOrder | None:
    """The byte order that a start-up report proves: its totals are 0, hence 32 on the wire.

    Two totals of 8160 in the other order look the same: an operator decides on a mismatch with the
    profile. Only for devices that add 32.
    """
    totals = body[4:8]
    if totals == b"\x00\x20\x00\x20":
        return ByteOrder.BIG
    return ByteOrder.LITTLE if totals == b"\x20\x00\x20\x00" else None


class ReportType(IntEnum):
    TIMER = 0x20  #: the reporting interval has passed
    START = 0x21  #: the device has started; older firmware starts with a TIMER report of zeros
    EVENTS = 0xFF  #: the event threshold was reached


def parse_report_type(byte: int) -> ReportType:
    try:
        return ReportType(byte)
    except ValueError:
        raise MalformedFrame(RejectReason.UNKNOWN_TYPE, f"a report of type 0x{byte:02x}") from None


REPORT_V2_VERSION: Final = 2
REPORT_V2_LENGTH: Final = 24
#: The bytes that the checksum covers.
REPORT_V2_CHECKED_LENGTH: Final = REPORT_V2_LENGTH - 2
CRC_PRESET: Final = 0xFFFF
QUARTER_HOUR: Final = timedelta(minutes=15)
_REPORT_V2_LAYOUT: Final = ">BBHHHIIIbB"


@dataclass(frozen=True, slots=True)
class ReportV2:
    """Totals that do not wrap in the life of a device, and correct diffs."""

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
        """Local time, as in a report v1."""
        return self.at.replace(tzinfo=None) + QUARTER_HOUR * self.utc_offset

    def encode(self) -> bytes:
        head = pack_fields(
            *(_REPORT_V2_LAYOUT, f"{self}", REPORT_V2_VERSION, self.type, self.counter),
            *(self.diff_in, self.diff_out, self.total_in, self.total_out),
            *(self.time, self.utc_offset, self.flags),
        )
        return head + report_v2_checksum(head).to_bytes(2, "big")

    @classmethod
    def decode(cls, body: bytes) -> ReportV2:
        check_length(body, REPORT_V2_LENGTH, REPORT_V2_LENGTH, "a report of version 2")
        if body[0] != REPORT_V2_VERSION:
            raise MalformedFrame(RejectReason.UNKNOWN_VERSION, f"a report of version {body[0]}")
        expected = report_v2_checksum(body[:REPORT_V2_CHECKED_LENGTH])
        found = int.from_bytes(body[REPORT_V2_CHECKED_LENGTH:], "big")
        if found != expected:
            raise MalformedFrame(
                RejectReason.BAD_CHECKSUM, f"0x{found:04x}, the bytes give 0x{expected:04x}"
            )
        kind = parse_report_type(body[1])
        return cls(kind, *struct.unpack_from(_REPORT_V2_LAYOUT, body)[2:])


def is_report_v2(body: bytes) -> bool:
    return len(body) == REPORT_V2_LENGTH and body[0] == REPORT_V2_VERSION


def report_v2_checksum(data: bytes) -> int:
    return binascii.crc_hqx(data, CRC_PRESET)
