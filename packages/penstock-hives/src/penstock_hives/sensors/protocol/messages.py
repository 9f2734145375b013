"""Events, statuses and configurations: encode and decode one message at a time.

An *event* is one person, or a sign of life, in 8 bytes:

    0 u8  type: 0 exit, 1 entry, 2 status     3 u8  reserved, or a message counter
    1 u16 distance, mm                        4 u32 Unix time

The manual's drawing and description disagree about bytes 1 to 3; this is the description. Byte 3
counts messages, modulo 256, if the profile says so.

A *status* has 20 bytes; it is sent periodically and after every configuration:

    0 u32 start-up time     6 u16 sensor state        10 u16 signal     16 u32 configuration id
    4 u16 battery           8 u16 discarded events    12 u32 firmware

The manual names no units. Here the battery is in mV, the signal in dBm as two's complement, the
firmware four numbers, the most significant byte first. A start-up time under 10⁹ is the number of
seconds since the start.

A *configuration* has 12 bytes and is published retained on the command topic, so that a sensor that
is offline receives it later; the sensor answers at once with a status that has its id:

    0 u16 threshold, cm              4 u16 status interval, min     8 u32 configuration id
    2 u16 reporting interval, min    6 u16 events that make a report
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from penstock_hives.sensors.protocol.frame import (
    FirmwareProfile,
    MalformedFrame,
    RejectReason,
    check_length,
    pack_fields,
)

EVENT_LENGTH: Final = 8
STATUS_LENGTH: Final = 20
CONFIGURATION_LENGTH: Final = 12
#: The first start-up time that is a date: no device runs for 31 years.
MIN_STARTUP_TIME: Final = 10**9
_STATUS_LAYOUT: Final = "IHHHhII"
_CONFIGURATION_LAYOUT: Final = "HHHHI"

FirmwareVersion = tuple[int, int, int, int]


class EventType(IntEnum):
    EXIT = 0
    ENTRY = 1
    STATUS = 2


@dataclass(frozen=True, slots=True)
class SensorEvent:
    type: EventType
    distance: int  #: mm
    time: int  #: Unix seconds
    counter: int = 0  #: byte 3

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


@dataclass(frozen=True, slots=True)
class StatusMessage:
    startup: int  #: Unix seconds, or seconds since the start: see `started_at`
    battery: int  #: mV
    sensor_state: int
    discarded_events: int
    signal: int  #: dBm
    firmware: FirmwareVersion
    configuration_id: int  #: of the last configuration: its acknowledgement

    def started_at(self, received: datetime) -> datetime:
        if self.startup < MIN_STARTUP_TIME:
            return received - timedelta(seconds=self.startup)
        return datetime.fromtimestamp(self.startup, UTC)

    def encode(self, profile: FirmwareProfile) -> bytes:
        return pack_fields(
            *(f"{profile.byte_order.sign}{_STATUS_LAYOUT}", f"{self}", self.startup, self.battery),
            *(self.sensor_state, self.discarded_events, self.signal),
            *(int.from_bytes(self.firmware, "big"), self.configuration_id),
        )

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> StatusMessage:
        check_length(body, STATUS_LENGTH, STATUS_LENGTH, "a status")
        startup, battery, state, discarded, signal, firmware, configuration = struct.unpack(
            f"{profile.byte_order.sign}{_STATUS_LAYOUT}", body
        )
        a, b, c, d = firmware.to_bytes(4, "big")
        return cls(startup, battery, state, discarded, signal, (a, b, c, d), configuration)


@dataclass(frozen=True, slots=True)
class SensorConfiguration:
    """The defaults are those of devices before their first configuration."""

    configuration_id: int = 0
    threshold_cm: int = 120
    report_interval_min: int = 30
    status_interval_min: int = 360
    event_threshold: int = 5

    def encode(self, profile: FirmwareProfile) -> bytes:
        return pack_fields(
            *(f"{profile.byte_order.sign}{_CONFIGURATION_LAYOUT}", f"{self}", self.threshold_cm),
            *(self.report_interval_min, self.status_interval_min, self.event_threshold),
            self.configuration_id,
        )

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> SensorConfiguration:
        check_length(body, CONFIGURATION_LENGTH, CONFIGURATION_LENGTH, "a configuration")
        layout = f"{profile.byte_order.sign}{_CONFIGURATION_LAYOUT}"
        *behaviour, identity = struct.unpack(layout, body)
        return cls(identity, *behaviour)
