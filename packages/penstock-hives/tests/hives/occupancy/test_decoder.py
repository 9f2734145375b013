"""Every message becomes a row, and what is none a dead letter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.occupancy import decoder
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.sensors.columnar import decode_reports
from penstock_hives.sensors.protocol import (
    ByteOrder,
    EventType,
    FirmwareProfile,
    ReportType,
    ReportV2,
    SensorEvent,
    StatusMessage,
)
from tests.hives.occupancy.sensed import NOON, Message, decoded, message, report, sensor

COUNTING = FirmwareProfile(event_counter=True)
PROFILES = SensorProfiles.of(
    [
        sensor("s1", hive_id=7),
        sensor(
            "s2", hive_id=8, firmware=FirmwareProfile(ByteOrder.LITTLE), time_zone="Asia/Kolkata"
        ),
        sensor("s3", hive_id=9, firmware=COUNTING),
    ]
)


def one(sent: Message) -> dict[str, Any]:
    (row,) = decoded([sent], PROFILES)
    return row


def reason(sent: Message) -> str:
    row = one(sent)
    assert row["part"] == "dead_letter"
    assert row["raw"] == sent["body"]
    assert row["dead_letter"]["topic"] == sent["routing_key"]
    return str(row["dead_letter"]["reason"])


def test_a_report_is_a_row_with_its_hive() -> None:
    row = one(report(0, 120, 110))
    assert (row["part"], row["kind"], row["hive_id"]) == ("report", "report", 7)
    assert (row["total_in"], row["total_out"]) == (120, 110)
    assert row["at"] == row["received_at"] == NOON
    assert row["quality"] == 0


def test_a_report_is_read_by_the_profile_of_its_sensor() -> None:
    little = FirmwareProfile(ByteOrder.LITTLE)
    local = (NOON + timedelta(hours=5, minutes=30)).replace(tzinfo=None)
    row = one(report(0, 300, 200, firmware=little, key="sensors.s2.report", clock=local))
    assert (row["total_in"], row["device_time"], row["at"]) == (300, local, NOON)


def test_a_report_v2_brings_its_own_zone() -> None:
    seconds = int(NOON.timestamp())
    body = ReportV2(ReportType.TIMER, 9, 0, 0, 70_000, 80_000, seconds, 8).encode()
    row = one(message(0, body))
    assert (row["total_in"], row["counter"], row["at"]) == (70_000, 9, NOON)
    assert row["device_time"] == (NOON + timedelta(hours=2)).replace(tzinfo=None)


def with_date(*date: int) -> Message:
    """A report with these bytes for year, month, day, hour, minute and second, 32 added or not."""
    sent = report(0, 1, 2)
    body = sent["body"]
    assert isinstance(body, bytes)
    return sent | {"body": body[:8] + bytes(date) + body[14:]}


@pytest.mark.parametrize(
    "date",
    [
        pytest.param((58, 34, 62, 32, 32, 32), id="the 30th of February"),
        pytest.param((58, 45, 33, 32, 32, 32), id="the thirteenth month"),
        pytest.param((58, 34, 33, 56, 32, 32), id="24 o'clock"),
        pytest.param((0, 0, 0, 0, 0, 0), id="bytes under 32"),
    ],
)
def test_an_impossible_date_counts_by_its_receipt_and_is_a_dead_letter(
    date: tuple[int, ...],
) -> None:
    sent = with_date(*date)

    row, letter = decoded([sent], PROFILES)

    assert (row["part"], row["at"], row["total_in"]) == ("report", NOON, 1)
    assert row["quality"] == Quality.CLOCK_SUSPECT
    assert letter["dead_letter"] == {"topic": sent["routing_key"], "reason": "impossible_date"}
    assert (letter["raw"], letter["sensor"], letter["received_at"]) == (sent["body"], "s1", NOON)


def test_an_event_is_a_row_with_its_counter_if_it_has_one() -> None:
    body = SensorEvent(EventType.ENTRY, 900, int(NOON.timestamp()), 44).encode(COUNTING)
    assert one(message(0, body, "sensors.s3.event"))["counter"] == 44
    assert one(message(0, body, "sensors.s1.event"))["counter"] is None


def test_a_status_tells_when_the_device_started() -> None:
    body = StatusMessage(3600, 4100, 1, 5, -80, (1, 2, 3, 4), 17).encode(FirmwareProfile())
    row = one(message(0, body, "sensors/s1/status"))
    assert row["part"] == "status"
    assert row["status"]["started_at"] == NOON - timedelta(hours=1)
    assert (row["status"]["signal"], row["status"]["firmware"]) == (-80, "1.2.3.4")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (message(0, b"\x00" * 14), "too_short"),
        (message(0, b""), "too_short"),
        (message(0, b"\x00" * 300), "too_long"),
        (message(0, b"\x00" * 59), "unknown_type"),
        (message(0, b"\x00" * 7, "sensors.s1.event"), "too_short"),
        (message(0, b"\x09" * 8, "sensors.s1.event"), "unknown_type"),
        (message(0, b"\x00" * 21, "sensors.s1.status"), "too_long"),
        (message(0, b"\x02" * 24), "bad_checksum"),
        (message(0, None), "no_body"),
        (message(0, b"\x00" * 59, "sensors.nobody.report"), "unknown_sensor"),
        (message(0, b"\x00" * 59, "sensors.s1.gossip"), "unknown_topic"),
        (message(0, b"\x00" * 59, "sensors.s1"), "unknown_topic"),
        (message(0, b"\x00" * 59, "weather/today"), "unknown_topic"),
    ],
)
def test_what_is_no_message_is_a_dead_letter_with_the_reason(sent: Message, why: str) -> None:
    assert reason(sent) == why


def test_bad_messages_touch_no_others() -> None:
    bad = [message(1, b"x"), message(3, None), message(5, b"\x00" * 400), message(7, b"", "what")]
    good = [report(offset, offset, 2 * offset) for offset in (0, 2, 4, 6, 8)]
    rows = decoded(sorted(bad + good, key=lambda each: int(each["offset"])), PROFILES)
    assert [row["part"] == "report" for row in rows] == [n % 2 == 0 for n in range(9)]
    assert [row["total_out"] for row in rows[::2]] == [0, 4, 8, 12, 16]


def test_a_message_that_makes_a_decoder_fail_is_found_and_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = decode_reports

    def delicate(bodies: Any, **said: Any) -> Any:
        if any(body is not None and body.startswith(b"poison") for body in bodies.to_pylist()):
            raise RuntimeError("a mistake of ours")
        return whole(bodies, **said)

    monkeypatch.setattr(decoder, "decode_reports", delicate)
    sent = [report(n, n, n) for n in range(10)]
    sent[6] = message(6, b"poison" * 5)
    rows = decoded(sent, PROFILES)
    assert [row["part"] for row in rows].count("report") == 9
    assert rows[6]["dead_letter"]["reason"] == "unreadable"


keys = st.sampled_from(
    [
        f"sensors.{serial}.{kind}"
        for serial in ("s1", "s2", "s9")
        for kind in ("report", "event", "status", "x")
    ]
)


@given(st.lists(st.tuples(keys, st.none() | st.binary(max_size=80)), max_size=30))
def test_whatever_comes_each_message_is_one_row(sent: list[tuple[str, bytes | None]]) -> None:
    rows = decoded([message(n, body, key) for n, (key, body) in enumerate(sent)], PROFILES)
    rows = [row for row in rows if (row["dead_letter"] or {}).get("reason") != "impossible_date"]
    assert [row["offset"] for row in rows] == list(range(len(sent)))
    assert [row["raw"] for row in rows] == [body for _, body in sent]
    for row in rows:
        assert (row["dead_letter"] is not None) == (row["part"] == "dead_letter")


def test_a_broker_that_does_not_say_when_it_came_leaves_that_to_the_device() -> None:
    sent = report(0, 1, 2) | {"timestamp": None}
    assert one(sent)["received_at"] == NOON
