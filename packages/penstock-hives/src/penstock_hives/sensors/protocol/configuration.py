"""A configuration: how a sensor should behave, in 12 bytes, on its command topic.

    0 u16 threshold, cm              4 u16 status interval, min     8 u32 configuration id
    2 u16 reporting interval, min    6 u16 events that make a report

The message is retained, so that a sensor that was away finds it; the sensor answers at once with a
status that names the configuration id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock_hives.sensors.protocol.frame import check_length, pack_fields
from penstock_hives.sensors.protocol.profile import FirmwareProfile

CONFIGURATION_LENGTH: Final = 12
_LAYOUT: Final = "HHHHI"


@dataclass(frozen=True, slots=True)
class SensorConfiguration:
    """The defaults are what devices do before they are told anything."""

    configuration_id: int = 0
    threshold_cm: int = 120
    report_interval_min: int = 30
    status_interval_min: int = 360
    event_threshold: int = 5

    def encode(self, profile: FirmwareProfile) -> bytes:
        return pack_fields(
            *(f"{profile.byte_order.sign}{_LAYOUT}", f"{self}", self.threshold_cm),
            *(self.report_interval_min, self.status_interval_min, self.event_threshold),
            self.configuration_id,
        )

    @classmethod
    def decode(cls, body: bytes, profile: FirmwareProfile) -> SensorConfiguration:
        check_length(body, CONFIGURATION_LENGTH, CONFIGURATION_LENGTH, "a configuration")
        *behaviour, identity = struct.unpack(f"{profile.byte_order.sign}{_LAYOUT}", body)
        return cls(identity, *behaviour)
