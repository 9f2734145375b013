"""Messages as hypothesis draws them, good and bad."""

from __future__ import annotations

from datetime import datetime

from hypothesis import strategies as st

from penstock_hives.sensors.protocol import (
    ByteOrder,
    EventType,
    FirmwareProfile,
    ReportType,
    ReportV1,
    ReportV2,
    SensorConfiguration,
    SensorEvent,
    StatusMessage,
)

u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)

profiles = st.builds(
    FirmwareProfile, st.sampled_from(ByteOrder), st.none() | u16, st.booleans(), st.booleans()
)


def wall(*parts: int) -> datetime:
    """A wall clock at a device: it has no zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


wall_clocks = st.datetimes(wall(2000, 1, 1), wall(2099, 12, 31, 23, 59, 59)).map(
    lambda time: time.replace(microsecond=0)
)
reports = st.builds(ReportV1, st.sampled_from(ReportType), u16, u16, wall_clocks | st.none())
reports2 = st.builds(
    ReportV2, st.sampled_from(ReportType), u16, u16, u16, u32, u32, u32, st.integers(-128, 127), u8
)
events = st.builds(SensorEvent, st.sampled_from(EventType), u16, u32, u8)
statuses = st.builds(
    StatusMessage, u32, u16, u16, u16, st.integers(-32768, 32767), st.tuples(u8, u8, u8, u8), u32
)
configurations = st.builds(SensorConfiguration, u32, u16, u16, u16, u16)


@st.composite
def damaged(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """A frame that was cut, lengthened, or had a byte changed."""
    body = draw(good)
    match draw(st.sampled_from(("cut", "longer", "changed"))):
        case "cut":
            return body[: draw(st.integers(0, len(body)))]
        case "longer":
            return body + draw(st.binary(min_size=1, max_size=300))
        case _:
            at = draw(st.integers(0, len(body) - 1))
            return body[:at] + bytes((draw(u8),)) + body[at + 1 :]


def bodies(good: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Good, damaged and arbitrary ones."""
    return good | damaged(good) | st.binary(max_size=300)
