"""Report v1, and the choice between it and v2.

Fifteen bytes carry data, big-endian unless the profile says otherwise; devices pad to 59. Counters
and dates travel with 32 added, the type does not: 0x20 and 0x21 are compared as they are. The two
*diff* fields repeat the totals, by a mistake of the firmware, and are neither read nor believed.

A date that cannot be (a byte under 32, a 31st of June) leaves `device_time` empty; whoever asks for
a time then has the moment of receipt. The time is the wall clock at the device: it has no zone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock.hives.sensors.messages.frame import check_length
from penstock.hives.sensors.messages.profile import ByteOrder, Profile
from penstock.hives.sensors.messages.report2 import Report2, looks_like_report2
from penstock.hives.sensors.messages.report_type import ReportType, read_type

#: How much of a report means something, and how long devices make it.
DATA: Final = 15
NOMINAL: Final = 59
#: Firmware may pad as it likes, up to here; what is longer is something else on the wrong topic.
LONGEST: Final = 255
PLUS: Final = 32
CENTURY: Final = 2000
#: Drawn beside the type; nobody checks it.
_FILLER: Final = 0xFF


@dataclass(frozen=True, slots=True)
class Report:
    """Totals since the device started, modulo its wrap point."""

    type: ReportType
    total_in: int
    total_out: int
    device_time: datetime | None  #: local, without a zone

    def encode(self, profile: Profile, length: int = NOMINAL) -> bytes:
        """As devices do: what does not fit sixteen bits with 32 added begins again at 0."""
        if not DATA <= length <= LONGEST:
            raise PreconditionFailed(f"a report has {DATA} to {LONGEST} bytes, not {length}")
        if not (0 <= self.total_in <= 0xFFFF and 0 <= self.total_out <= 0xFFFF):
            raise PreconditionFailed(f"{self} cannot be encoded: totals have sixteen bits")
        plus = PLUS if profile.plus_32 else 0
        totals = [(total + plus) & 0xFFFF for total in (self.total_in, self.total_out)]
        order = profile.byte_order.sign
        counts = struct.pack(f"{order}HHHH", *totals, *totals)
        body = counts + _encode_time(self.device_time, plus) + bytes((self.type, _FILLER))
        return body[:length].ljust(length, b"\x00")

    @classmethod
    def decode(cls, body: bytes, profile: Profile) -> Report:
        check_length(body, DATA, LONGEST, "a report")
        kind = read_type(body[14])
        plus = PLUS if profile.plus_32 else 0
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
    if not CENTURY <= time.year < CENTURY + 100:
        raise PreconditionFailed(f"a report has two digits for the year, too few for {time.year}")
    date = (time.year - CENTURY, time.month, time.day)
    return bytes(part + plus for part in (*date, time.hour, time.minute, time.second))


def _decode_time(date: bytes, plus: int) -> datetime | None:
    year, month, day, hour, minute, second = (byte - plus for byte in date)
    if not 0 <= year < 100:
        return None
    try:
        return datetime(CENTURY + year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        return None


def decode_report(body: bytes, profile: Profile) -> Report | Report2:
    """Either version: v2 says itself what it is, and no v1 device sends frames of its length."""
    if looks_like_report2(body):
        return Report2.decode(body)
    return Report.decode(body, profile)


def proven_order(body: bytes) -> ByteOrder | None:
    """The byte order a start-up report proves: its totals are 0, hence 32 on the wire.

    Totals of 8160 both, in the other order, look the same: a mismatch with the profile is for an
    operator to look at. Only for devices that add 32.
    """
    totals = body[4:8]
    if totals == b"\x00\x20\x00\x20":
        return ByteOrder.BIG
    return ByteOrder.LITTLE if totals == b"\x20\x00\x20\x00" else None
