"""Messages of sensors: golden bytes, round trips, and a reason for whatever is none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock_hives.sensors.protocol import (
    ByteOrder,
    EventType,
    FirmwareProfile,
    MalformedFrame,
    RejectReason,
    ReportType,
    ReportV1,
    ReportV2,
    SensorConfiguration,
    SensorEvent,
    StatusMessage,
    decode_report,
    proven_byte_order,
)
from penstock_hives.sensors.protocol.report import report_v2_checksum
from tests.hives.sensors import frames

BIG = FirmwareProfile()
LITTLE = FirmwareProfile(ByteOrder.LITTLE)
NOON = frames.wall(2021, 6, 15, 12, 30, 45)

# 1000 in, 500 out: 1032 and 532 on the wire, and the diffs repeat them.
REPORT_BIG = bytes.fromhex("0408 0214 0408 0214 35 26 2f 2c 3e 4d ff ff")
REPORT_LITTLE = bytes.fromhex("0804 1402 0804 1402 35 26 2f 2c 3e 4d ff ff")


def reason_of(decode: Callable[[], Any]) -> RejectReason:
    with pytest.raises(MalformedFrame) as caught:
        decode()
    return caught.value.reason


class TestReport:
    value = ReportV1(ReportType.EVENTS, 1000, 500, NOON)

    @pytest.mark.parametrize(("profile", "golden"), [(BIG, REPORT_BIG), (LITTLE, REPORT_LITTLE)])
    def test_has_these_bytes(self, profile: FirmwareProfile, golden: bytes) -> None:
        assert self.value.encode(profile) == golden.ljust(59, b"\x00")
        assert ReportV1.decode(golden, profile) == self.value

    def test_may_add_nothing_when_the_profile_says_so(self) -> None:
        plain = FirmwareProfile(plus_32=False)
        golden = bytes.fromhex("03e8 01f4 03e8 01f4 15 06 0f 0c 1e 2d ff ff")
        assert self.value.encode(plain, 16) == golden
        assert ReportV1.decode(golden, plain) == self.value

    @pytest.mark.parametrize("length", [15, 16, 24, 59, 60, 255])
    def test_has_any_length_from_15(self, length: int) -> None:
        assert decode_report(self.value.encode(BIG, length), BIG) == self.value

    def test_padding_and_diffs_are_not_looked_at(self) -> None:
        assert ReportV1.decode(b"\xee" * 4 + REPORT_BIG[4:15] + b"\xaa" * 44, BIG) == self.value

    @pytest.mark.parametrize("total", [65503, 65504, 65523, 65535])
    def test_totals_near_the_top_pass_through_0_on_the_wire(self, total: int) -> None:
        body = ReportV1(ReportType.TIMER, total, total, NOON).encode(BIG)
        assert int.from_bytes(body[4:6], "big") == (total + 32) % 65536
        assert ReportV1.decode(body, BIG).total_in == total

    @pytest.mark.parametrize(
        "date",
        [
            "1f 26 2f 2c 3e 4d",  # the year under 32
            "00 00 00 00 00 00",
            "35 20 2f 2c 3e 4d",  # month 0
            "35 26 3f 2c 3e 4d",  # 31 June
            "35 22 3d 2c 3e 4d",  # 29 February 2021
            "35 26 2f 38 3e 4d",  # 24 o'clock
            "84 26 2f 2c 3e 4d",  # year 100
        ],
    )
    def test_a_date_that_cannot_be_leaves_the_counts(self, date: str) -> None:
        body = REPORT_BIG[:8] + bytes.fromhex(date) + REPORT_BIG[14:]
        assert ReportV1.decode(body, BIG) == ReportV1(ReportType.EVENTS, 1000, 500, None)

    def test_has_a_leap_day(self) -> None:
        leap = ReportV1(ReportType.TIMER, 0, 0, frames.wall(2024, 2, 29))
        assert ReportV1.decode(leap.encode(BIG), BIG) == leap

    def test_says_why_it_is_none(self) -> None:
        assert reason_of(lambda: ReportV1.decode(REPORT_BIG[:14], BIG)) is RejectReason.TOO_SHORT
        assert reason_of(lambda: ReportV1.decode(bytes(256), BIG)) is RejectReason.TOO_LONG
        odd = REPORT_BIG[:14] + b"\x22"
        assert reason_of(lambda: ReportV1.decode(odd, BIG)) is RejectReason.UNKNOWN_TYPE

    @pytest.mark.parametrize("kind", [ReportType.TIMER, ReportType.START])
    @pytest.mark.parametrize("order", ByteOrder)
    def test_at_start_up_proves_the_byte_order(self, order: ByteOrder, kind: ReportType) -> None:
        assert proven_byte_order(ReportV1(kind, 0, 0, NOON).encode(FirmwareProfile(order))) is order

    def test_later_on_proves_nothing(self) -> None:
        assert proven_byte_order(REPORT_BIG) is None

    def test_refuses_what_it_cannot_carry(self) -> None:
        for bad in (
            ReportV1(ReportType.TIMER, 65536, 0, NOON),
            ReportV1(ReportType.TIMER, -33, 0, NOON),
            ReportV1(ReportType.TIMER, 0, 0, frames.wall(1999, 1, 1)),
        ):
            with pytest.raises(PreconditionFailed):
                bad.encode(BIG)

    @given(frames.reports, frames.profiles, st.integers(15, 255))
    def test_round_trip(self, report: ReportV1, profile: FirmwareProfile, length: int) -> None:
        assert ReportV1.decode(report.encode(profile, length), profile) == report


class TestReport2:
    value = ReportV2(ReportType.START, 258, 3, 4, 70000, 69000, 1_700_000_000, 22)
    golden = bytes.fromhex("02 21 0102 0003 0004 00011170 00010d88 6553f100 16 00 4763")

    def test_has_these_bytes(self) -> None:
        assert self.value.encode() == self.golden
        assert decode_report(self.golden, LITTLE) == self.value

    def test_knows_its_zone(self) -> None:
        assert self.value.at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert self.value.device_time == frames.wall(2023, 11, 15, 3, 43, 20)

    def test_checksum_is_that_of_the_catalogues(self) -> None:
        assert report_v2_checksum(b"123456789") == 0x29B1

    def test_says_why_it_is_none(self) -> None:
        golden = self.golden
        assert reason_of(lambda: ReportV2.decode(golden[:-1])) is RejectReason.TOO_SHORT
        assert reason_of(lambda: ReportV2.decode(golden + b"\x00")) is RejectReason.TOO_LONG
        assert (
            reason_of(lambda: ReportV2.decode(b"\x03" + golden[1:])) is RejectReason.UNKNOWN_VERSION
        )
        damaged = golden[:8] + b"\x01" + golden[9:]
        assert reason_of(lambda: ReportV2.decode(damaged)) is RejectReason.BAD_CHECKSUM
        head = b"\x02\x07" + golden[2:22]
        odd = head + report_v2_checksum(head).to_bytes(2, "big")
        assert reason_of(lambda: ReportV2.decode(odd)) is RejectReason.UNKNOWN_TYPE

    @given(frames.reports2)
    def test_round_trip(self, report: ReportV2) -> None:
        assert decode_report(report.encode(), BIG) == report

    @given(frames.reports2)
    def test_always_has_a_wall_clock(self, report: ReportV2) -> None:
        assert report.device_time.tzinfo is None


class TestEvent:
    value = SensorEvent(EventType.ENTRY, 1234, 1_700_000_000, 7)

    @pytest.mark.parametrize(
        ("profile", "golden"),
        [(BIG, "01 04d2 07 6553f100"), (LITTLE, "01 d204 07 00f15365")],
    )
    def test_has_these_bytes(self, profile: FirmwareProfile, golden: str) -> None:
        assert self.value.encode(profile) == bytes.fromhex(golden)
        assert SensorEvent.decode(bytes.fromhex(golden), profile) == self.value

    def test_says_why_it_is_none(self) -> None:
        body = self.value.encode(BIG)
        assert reason_of(lambda: SensorEvent.decode(body[:-1], BIG)) is RejectReason.TOO_SHORT
        assert reason_of(lambda: SensorEvent.decode(body + b"\x00", BIG)) is RejectReason.TOO_LONG
        assert (
            reason_of(lambda: SensorEvent.decode(b"\x03" + body[1:], BIG))
            is RejectReason.UNKNOWN_TYPE
        )

    @given(frames.events, frames.profiles)
    def test_round_trip(self, event: SensorEvent, profile: FirmwareProfile) -> None:
        assert SensorEvent.decode(event.encode(profile), profile) == event


class TestStatus:
    value = StatusMessage(1_700_000_000, 3650, 1, 12, -85, (1, 4, 0, 2), 77)

    @pytest.mark.parametrize(
        ("profile", "golden"),
        [
            (BIG, "6553f100 0e42 0001 000c ffab 01040002 0000004d"),
            (LITTLE, "00f15365 420e 0100 0c00 abff 02000401 4d000000"),
        ],
    )
    def test_has_these_bytes(self, profile: FirmwareProfile, golden: str) -> None:
        assert self.value.encode(profile) == bytes.fromhex(golden)
        assert StatusMessage.decode(bytes.fromhex(golden), profile) == self.value

    def test_a_small_start_up_time_is_how_long_it_has_been_up(self) -> None:
        now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        up_an_hour = StatusMessage(3600, 0, 0, 0, 0, (0, 0, 0, 0), 0)
        assert up_an_hour.started_at(now) == datetime(2026, 1, 1, 11, tzinfo=UTC)
        assert self.value.started_at(now) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)

    @given(frames.statuses, frames.profiles)
    def test_round_trip(self, status: StatusMessage, profile: FirmwareProfile) -> None:
        assert StatusMessage.decode(status.encode(profile), profile) == status


class TestConfiguration:
    value = SensorConfiguration(77, 120, 30, 360, 5)

    @pytest.mark.parametrize(
        ("profile", "golden"),
        [(BIG, "0078 001e 0168 0005 0000004d"), (LITTLE, "7800 1e00 6801 0500 4d000000")],
    )
    def test_has_these_bytes(self, profile: FirmwareProfile, golden: str) -> None:
        assert self.value.encode(profile) == bytes.fromhex(golden)
        assert SensorConfiguration.decode(bytes.fromhex(golden), profile) == self.value

    def test_refuses_what_it_cannot_carry(self) -> None:
        with pytest.raises(PreconditionFailed):
            SensorConfiguration(1, threshold_cm=65536).encode(BIG)

    @given(frames.configurations, frames.profiles)
    def test_round_trip(self, configuration: SensorConfiguration, profile: FirmwareProfile) -> None:
        assert SensorConfiguration.decode(configuration.encode(profile), profile) == configuration


@given(st.binary(max_size=300), frames.profiles)
def test_any_bytes_are_a_value_or_have_a_reason(body: bytes, profile: FirmwareProfile) -> None:
    for decode in (
        decode_report,
        SensorEvent.decode,
        StatusMessage.decode,
        SensorConfiguration.decode,
    ):
        found: object
        try:
            found = decode(body, profile)
        except MalformedFrame as error:
            found = error.reason
        assert isinstance(
            found,
            (ReportV1, ReportV2, SensorEvent, StatusMessage, SensorConfiguration, RejectReason),
        )


@given(frames.profiles)
def test_a_profile_survives_its_column(profile: FirmwareProfile) -> None:
    assert FirmwareProfile.from_json(profile.to_json()) == profile


def test_a_profile_of_nothing_is_that_of_an_unknown_device() -> None:
    assert FirmwareProfile.from_json({"colour": "grey"}) == FirmwareProfile()
