"""The messages between sensors and the system: bytes in, values out, and back.

Every decoder gives a value or raises `MalformedFrame` with its `Reason`; nothing else, whatever
the bytes. `docs/sensors.md` draws the layouts and says how each doubt about them was settled.
"""

from penstock.hives.sensors.messages.configuration import Configuration
from penstock.hives.sensors.messages.event import Event, EventType
from penstock.hives.sensors.messages.profile import ByteOrder, Profile, Protocol
from penstock.hives.sensors.messages.reason import MalformedFrame, Reason
from penstock.hives.sensors.messages.report import Report, decode_report, proven_order
from penstock.hives.sensors.messages.report2 import Report2
from penstock.hives.sensors.messages.report_type import ReportType
from penstock.hives.sensors.messages.status import Status
from penstock.hives.sensors.messages.topic import Kind, SensorTopic

__all__ = [
    "ByteOrder",
    "Configuration",
    "Event",
    "EventType",
    "Kind",
    "MalformedFrame",
    "Profile",
    "Protocol",
    "Reason",
    "Report",
    "Report2",
    "ReportType",
    "SensorTopic",
    "Status",
    "decode_report",
    "proven_order",
]
