"""The sensor protocol: encode and decode one message at a time.

A decoder returns a value or raises `MalformedFrame` with its `RejectReason`. `docs/sensors.md`
draws the layouts and explains the choices where the manual is ambiguous.
"""

from penstock_hives.sensors.protocol.frame import (
    ByteOrder,
    FirmwareProfile,
    MalformedFrame,
    RejectReason,
    SensorProtocol,
)
from penstock_hives.sensors.protocol.messages import (
    EventType,
    SensorConfiguration,
    SensorEvent,
    StatusMessage,
)
from penstock_hives.sensors.protocol.report import (
    ReportType,
    ReportV1,
    ReportV2,
    decode_report,
    proven_byte_order,
)
from penstock_hives.sensors.protocol.topic import SensorMessageKind, SensorTopic

__all__ = [
    "ByteOrder",
    "EventType",
    "FirmwareProfile",
    "MalformedFrame",
    "RejectReason",
    "ReportType",
    "ReportV1",
    "ReportV2",
    "SensorConfiguration",
    "SensorEvent",
    "SensorMessageKind",
    "SensorProtocol",
    "SensorTopic",
    "StatusMessage",
    "decode_report",
    "proven_byte_order",
]
