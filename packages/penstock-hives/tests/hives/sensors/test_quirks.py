"""Quirks, one at a time: each does what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.core.errors import ConfigurationError
from penstock_hives.sensors.fleet import Quirks
from penstock_hives.sensors.protocol import (
    MalformedFrame,
    ReportType,
    ReportV2,
    SensorEvent,
    SensorMessageKind,
    SensorProtocol,
    SensorTopic,
    StatusMessage,
    decode_report,
)
from tests.hives.sensors.simulated import (
    DAY,
    MONDAY,
    NONE,
    assert_readable,
    fleet,
    ledger_of,
    reports_of,
    rises,
)


def test_byte_orders_and_directions_are_as_the_catalogue_says() -> None:
    assert_readable(fleet(replace(NONE, little_endian=0.5, swapped=0.5)), MONDAY + DAY)


def test_the_32_can_be_left_out() -> None:
    simulated = fleet(replace(NONE, plus_32=False))
    assert not any(sensor.profile.plus_32 for sensor in simulated.sensors)
    assert_readable(simulated, MONDAY + DAY)


def test_v2_counts_its_messages_and_its_diffs_add_up() -> None:
    simulated = fleet(replace(NONE, v2=1.0, restarts=2.0))
    assert {sensor.protocol for sensor in simulated.sensors} == {SensorProtocol.V2}
    for sent in reports_of(simulated).values():
        for (_, old), (_, new) in pairwise(sent):
            assert isinstance(old, ReportV2)
            assert isinstance(new, ReportV2)
            assert new.counter == (old.counter + 1) % 65536
            if new.type is not ReportType.START:
                assert new.diff_in == new.total_in - old.total_in


def test_duplicates_are_the_same_bytes_again() -> None:
    once = list(fleet().frames(MONDAY + DAY / 2))
    twice = list(fleet(replace(NONE, duplicates=1.0)).frames(MONDAY + DAY / 2))
    first_slot = len(fleet().sensors)
    assert len(twice) == 2 * len(once) - first_slot
    assert {frame.body for frame in twice} == {frame.body for frame in once}


def test_late_frames_arrive_after_later_ones() -> None:
    sent = reports_of(fleet(replace(NONE, late=0.3)))
    falls = sum(
        new.total_in < old.total_in
        for each in sent.values()
        for (_, old), (_, new) in pairwise(each)
    )
    assert falls > 0


def test_corrupt_frames_are_no_messages() -> None:
    simulated = fleet(replace(NONE, corrupt=1.0, little_endian=0.5, v2=0.3, event=0.3))
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    frames = list(simulated.frames(MONDAY + DAY / 3))[len(sensors) :]
    assert len(frames) > 500
    for frame in frames:
        topic = SensorTopic.parse(frame.topic)
        profile = sensors[topic.serial].profile
        decode = {
            SensorMessageKind.REPORT: decode_report,
            SensorMessageKind.EVENT: SensorEvent.decode,
            SensorMessageKind.STATUS: StatusMessage.decode,
        }
        with pytest.raises(MalformedFrame):
            decode[topic.kind](frame.body, profile)


def test_scrambled_reports_are_reports_of_nothing() -> None:
    sent = reports_of(fleet(replace(NONE, scrambled=1.0)))
    assert max(rises(sent)) > 1000


def test_wrong_clocks_are_minutes_or_more_than_half_a_day_off() -> None:
    simulated = fleet(replace(NONE, wrong_clocks=1.0), hives=30)
    zones = {hive.id: ZoneInfo(hive.time_zone) for hive in simulated.hives}
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    off = []
    for serial, sent in reports_of(simulated, MONDAY + DAY / 24).items():
        frame, report = sent[0]
        there = datetime.fromtimestamp(frame.at / 1000, zones[sensors[serial].hive_id])
        assert report.device_time is not None
        off.append(abs(there.replace(tzinfo=None) - report.device_time))
    near, far = timedelta(minutes=11), timedelta(hours=12)
    assert all(timedelta(seconds=30) < error < near or error > far for error in off)
    assert min(off) < near
    assert max(off) > far


def test_people_who_are_missed_are_inside_all_the_same() -> None:
    seen, missed = fleet(), fleet(replace(NONE, missed=0.5))
    windows = [list(simulated.windows(MONDAY + DAY / 2)) for simulated in (seen, missed)]
    first, second = ([window.truth.occupancy() for window in each] for each in windows)
    assert first == second
    all_of, some = (sum(row["counted_in"] for row in ledger_of(f).values()) for f in (seen, missed))
    assert some < 0.6 * all_of


def test_quirks_are_changed_by_name() -> None:
    assert NONE.changed(["loss=0.1", "wraps=on"]) == replace(NONE, loss=0.1, wraps=True)
    assert Quirks().changed(["loss=off"]).loss == 0


@pytest.mark.parametrize("pair", ["rust=1", "loss", "loss=much", "loss=2", "corrupt=0.995"])
def test_quirks_that_cannot_be_are_refused(pair: str) -> None:
    with pytest.raises(ConfigurationError):
        Quirks().changed([pair])
