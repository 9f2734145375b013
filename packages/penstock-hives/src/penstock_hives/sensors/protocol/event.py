"""An event: one person, or a sign of life, in 8 bytes.

    0 u8  type: 0 exit, 1 entry, 2 status     3 u8  reserved, or a message counter
    1 u16 distance, mm                        4 u32 Unix time

The drawing of this message and its description disagree about bytes 1 to 3; this is the
description. Byte 3 counts messages, modulo 256, when the profile says so.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from penstock_hives.sensors.protocol.frame import (
    MalformedFrame,
    RejectReason,
    check_length,
    pack_fields,
)
from penstock_hives.sensors.protocol.profile import FirmwareProfile

EVENT_LENGTH: Final = 8


class EventType(IntEnum):
    EXIT = 0
    ENTRY = 1
    STATUS = 2


@dataclass(frozen=True, slots=True)
class SensorEvent:
    type: EventType
    distance: int  #: mm
    time: int  #: Unix seconds
    counter: int = 0  #: byte 3, whatever it means to this device

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def encode(self, profile: FirmwareProfile) -> bytes:
        layout = f"{profile.byte_order.sign}BHBI"
        return pack_fields(layout, f"{self}", self.type, self.distance, self.counter, self.time)

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> SensorEvent:
        check_length(body, EVENT_LENGTH, EVENT_LENGTH, "an event")
        kind, distance, counter, time = struct.unpack(f"{profile.byte_order.sign}BHBI", body)
        try:
            return cls(EventType(kind), distance, time, counter)
        except ValueError:
            raise MalformedFrame(RejectReason.UNKNOWN_TYPE, f"an event of type {kind}") from None
