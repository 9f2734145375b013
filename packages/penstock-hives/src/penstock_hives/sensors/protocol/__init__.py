"""The sensor protocol: encode and decode one message at a time.

A decoder returns a value or raises `MalformedFrame` with its `RejectReason`. `docs/sensors.md`
draws the layouts and explains the choices where the manual is ambiguous.
"""

from penstock_hives.sensors.protocol.configuration import SensorConfiguration
from penstock_hives.sensors.protocol.event import EventType, SensorEvent
from penstock_hives.sensors.protocol.frame import MalformedFrame, RejectReason
from penstock_hives.sensors.protocol.profile import ByteOrder, FirmwareProfile, SensorProtocol
from penstock_hives.sensors.protocol.report import (
    ReportType,
    ReportV1,
    ReportV2,
    decode_report,
    proven_byte_order,
)
from penstock_hives.sensors.protocol.status import StatusMessage
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
