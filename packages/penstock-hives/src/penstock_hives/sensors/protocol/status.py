"""A status: how a sensor is, in 20 bytes, now and then and after every configuration.

    0 u32 start-up time     6 u16 sensor state        10 u16 signal     16 u32 configuration id
    4 u16 battery           8 u16 discarded events    12 u32 firmware

Units nobody wrote down, as we read them: the battery in mV, the signal in dBm as a two's
complement, the firmware as four numbers, the most significant byte first. A start-up time under
10⁹ is no date but the seconds since the start.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock_hives.sensors.protocol.frame import check_length, pack_fields
from penstock_hives.sensors.protocol.profile import FirmwareProfile

STATUS_LENGTH: Final = 20
#: The first start-up time that is a date: no device has been up for 31 years.
MIN_STARTUP_TIME: Final = 10**9
_LAYOUT: Final = "IHHHhII"

FirmwareVersion = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class StatusMessage:
    startup: int  #: Unix seconds, or the seconds it has been up: see `started_at`
    battery: int  #: mV
    sensor_state: int
    discarded_events: int
    signal: int  #: dBm
    firmware: FirmwareVersion
    configuration_id: int  #: the last configuration it has read: the acknowledgement of that

    def started_at(self, received: datetime) -> datetime:
        if self.startup < MIN_STARTUP_TIME:
            return received - timedelta(seconds=self.startup)
        return datetime.fromtimestamp(self.startup, UTC)

    def encode(self, profile: FirmwareProfile) -> bytes:
        return pack_fields(
            *(f"{profile.byte_order.sign}{_LAYOUT}", f"{self}", self.startup, self.battery),
            *(self.sensor_state, self.discarded_events, self.signal),
            *(int.from_bytes(self.firmware, "big"), self.configuration_id),
        )

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> StatusMessage:
        check_length(body, STATUS_LENGTH, STATUS_LENGTH, "a status")
        startup, battery, state, discarded, signal, firmware, configuration = struct.unpack(
            f"{profile.byte_order.sign}{_LAYOUT}", body
        )
        a, b, c, d = firmware.to_bytes(4, "big")
        return cls(startup, battery, state, discarded, signal, (a, b, c, d), configuration)
