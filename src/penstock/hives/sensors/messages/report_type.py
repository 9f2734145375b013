"""Why a report was sent: the same numbers in both versions, as they are on the wire."""

from __future__ import annotations

from enum import IntEnum

from penstock.hives.sensors.messages.reason import MalformedFrame, Reason


class ReportType(IntEnum):
    TIMER = 0x20  #: nothing was sent for the reporting interval
    START = 0x21  #: the device has started; older firmware starts with a TIMER report of zeros
    EVENTS = 0xFF  #: as many events as the threshold says


def read_type(byte: int) -> ReportType:
    try:
        return ReportType(byte)
    except ValueError:
        raise MalformedFrame(Reason.UNKNOWN_TYPE, f"a report of type 0x{byte:02x}") from None
