"""Columns decode as the scalar codecs do, row by row, whatever stands next to a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.sensors.columnar.messages import (
    EVENT_SCHEMA,
    STATUS_SCHEMA,
    TOPIC_SCHEMA,
    decode_events,
    decode_statuses,
    parse_topics,
)
from penstock_hives.sensors.columnar.reports import REPORT_SCHEMA, decode_reports
from penstock_hives.sensors.protocol import (
    ByteOrder,
    FirmwareProfile,
    MalformedFrame,
    ReportType,
    ReportV1,
    ReportV2,
    SensorEvent,
    SensorTopic,
    StatusMessage,
    decode_report,
    proven_byte_order,
)
from tests.hives.sensors import frames

Row = dict[str, Any]


def rows(
    good: st.SearchStrategy[Any],
) -> st.SearchStrategy[list[tuple[bytes | None, FirmwareProfile]]]:
    """Bodies, each of a sensor with its own profile."""

    @st.composite
    def one(draw: st.DrawFn) -> tuple[bytes | None, FirmwareProfile]:
        profile = draw(frames.profiles)
        encoded = good.map(lambda m: m.encode() if isinstance(m, ReportV2) else m.encode(profile))
        return draw(frames.bodies(encoded) | st.none()), profile

    return st.lists(one(), max_size=12)


def expected(decode: Callable[[bytes], Row], names: Sequence[str], body: bytes | None) -> Row:
    nothing = dict.fromkeys(names)
    if body is None:
        return nothing | {"reason": "no_body"}
    try:
        return nothing | decode(body)
    except MalformedFrame as error:
        return nothing | {"reason": error.reason.value}


def report_row(body: bytes, profile: FirmwareProfile) -> Row:
    found = decode_report(body, profile)
    row: Row = {
        "type": int(found.type),
        "total_in": found.total_in,
        "total_out": found.total_out,
        "device_time": found.device_time,
    }
    if isinstance(found, ReportV2):
        return row | {
            "version": 2,
            "device_utc": found.at,
            "counter": found.counter,
            "diff_in": found.diff_in,
            "diff_out": found.diff_out,
            "flags": found.flags,
        }
    order = proven_byte_order(body) if profile.plus_32 else None
    return row | {"version": 1, "proven_order": order and order.value}


def event_row(body: bytes, profile: FirmwareProfile) -> Row:
    event = SensorEvent.decode(body, profile)
    return {
        "type": int(event.type),
        "distance": event.distance,
        "device_utc": event.at,
        "counter": event.counter,
    }


def status_row(body: bytes, profile: FirmwareProfile) -> Row:
    status = StatusMessage.decode(body, profile)
    names = ("startup", "battery", "sensor_state", "discarded_events", "signal", "configuration_id")
    firmware = ".".join(map(str, status.firmware))
    return {name: getattr(status, name) for name in names} | {"firmware": firmware}


def topic_row(name: bytes) -> Row:
    topic = SensorTopic.parse(name.decode())
    return {"serial": topic.serial, "kind": topic.kind.value}


def little(batch: Sequence[tuple[bytes | None, FirmwareProfile]]) -> list[bool]:
    return [profile.byte_order is ByteOrder.LITTLE for _, profile in batch]


@given(
    rows(frames.reports | frames.reports2),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_reports(batch: list[tuple[bytes | None, FirmwareProfile]], kind: pa.DataType) -> None:
    found = decode_reports(
        pa.array([body for body, _ in batch], kind),
        little=little(batch),
        plain=[not profile.plus_32 for _, profile in batch],
    )
    assert found.schema == REPORT_SCHEMA
    assert found.to_pylist() == [
        expected(lambda b, p=profile: report_row(b, p), REPORT_SCHEMA.names, body)  # type: ignore[misc]
        for body, profile in batch
    ]


@given(rows(frames.events))
def test_events(batch: list[tuple[bytes | None, FirmwareProfile]]) -> None:
    found = decode_events(pa.array([body for body, _ in batch], pa.binary()), little=little(batch))
    assert found.schema == EVENT_SCHEMA
    assert found.to_pylist() == [
        expected(lambda b, p=profile: event_row(b, p), EVENT_SCHEMA.names, body)  # type: ignore[misc]
        for body, profile in batch
    ]


@given(rows(frames.statuses))
def test_statuses(batch: list[tuple[bytes | None, FirmwareProfile]]) -> None:
    bodies = pa.array([body for body, _ in batch], pa.binary())
    found = decode_statuses(bodies, little=little(batch))
    assert found.schema == STATUS_SCHEMA
    assert found.to_pylist() == [
        expected(lambda b, p=profile: status_row(b, p), STATUS_SCHEMA.names, body)  # type: ignore[misc]
        for body, profile in batch
    ]


GOOD = ReportV1(ReportType.TIMER, 7, 5, frames.wall(2026, 1, 2, 3, 4, 5))


def test_a_slice_is_decoded_by_itself() -> None:
    bodies = pa.array(
        [b"", GOOD.encode(FirmwareProfile()), b"xx", GOOD.encode(FirmwareProfile(), 15)]
    )
    whole = decode_reports(bodies).to_pylist()
    assert decode_reports(bodies[1:]).to_pylist() == whole[1:]
    assert decode_reports(bodies[3:]).to_pylist()[0]["total_in"] == 7


def test_chunks_are_decoded_as_one_column() -> None:
    chunk = pa.array([GOOD.encode(FirmwareProfile())])
    assert decode_reports(pa.chunked_array([chunk, chunk])).num_rows == 2


def test_fixed_size_bodies_are_bodies() -> None:
    bodies = pa.array([GOOD.encode(FirmwareProfile())], pa.binary(59))
    assert decode_reports(bodies).to_pylist()[0]["total_out"] == 5


def test_no_rows_make_no_rows() -> None:
    assert decode_reports(pa.array([], pa.binary())).num_rows == 0
    assert decode_events(pa.array([], pa.binary())).num_rows == 0
    assert decode_statuses(pa.array([], pa.binary())).num_rows == 0


def test_byte_orders_may_come_as_a_column_with_gaps() -> None:
    bodies = pa.array(
        [GOOD.encode(FirmwareProfile()), GOOD.encode(FirmwareProfile(ByteOrder.LITTLE))]
    )
    found = decode_reports(bodies, little=pa.array([None, True]))
    assert found["total_in"].to_pylist() == [7, 7]


def test_a_time_in_utc_has_its_zone() -> None:
    report = ReportV2(ReportType.TIMER, 0, 0, 0, 0, 0, 0, 4)
    found = decode_reports(pa.array([report.encode()])).to_pylist()[0]
    assert found["device_utc"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert found["device_time"] == frames.wall(1970, 1, 1, 1)


names = st.sampled_from(
    ["sensors/7/report", "sensors.7.event", "sensors/x/status", "other", "", None]
)


@pytest.mark.parametrize("dictionary", [False, True])
@given(batch=st.lists(names))
def test_topics(dictionary: bool, batch: list[str | None]) -> None:
    column = pa.array(batch, pa.string())
    found = parse_topics(column.dictionary_encode() if dictionary else column)
    assert found.to_pylist() == [
        expected(topic_row, TOPIC_SCHEMA.names, (name or "").encode()) for name in batch
    ]
