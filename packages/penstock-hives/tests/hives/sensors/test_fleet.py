"""The simulated fleet: what it is, when devices send, and that they obey."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_hives.sensors.protocol import ReportType, SensorConfiguration, StatusMessage
from tests.hives.sensors.simulated import (
    DAY,
    MONDAY,
    NONE,
    fleet,
    reports_of,
)

# What it is.


def test_the_same_arguments_make_the_same_frames() -> None:
    until = MONDAY + DAY / 2
    assert list(fleet(Quirks()).frames(until)) == list(fleet(Quirks()).frames(until))


def test_another_seed_makes_others() -> None:
    until = MONDAY + DAY / 2
    assert list(fleet(seed=1).frames(until)) != list(fleet(seed=2).frames(until))


@pytest.mark.parametrize("slots", [1, 5, 100])
def test_frames_do_not_depend_on_how_time_is_cut(slots: int) -> None:
    quirks = replace(Quirks(), late=0.05, duplicates=0.05)
    until = MONDAY + DAY / 2
    assert list(fleet(quirks).frames(until, slots)) == list(fleet(quirks).frames(until))


def test_frames_come_in_order_of_arrival() -> None:
    frames = list(fleet(replace(Quirks(), late=0.1)).frames(MONDAY + DAY))
    assert all(first.at <= second.at for first, second in pairwise(frames))


def test_a_window_is_what_a_stream_would_keep() -> None:
    window = next(fleet().windows(slots=2))
    assert window.frames.schema.names == ["timestamp", "routing_key", "body"]
    first = window.frames.slice(0, 1).to_pylist()[0]
    frame = next(iter(window))
    assert first["routing_key"].replace(".", "/") == frame.topic
    assert first["timestamp"].timestamp() * 1000 == frame.at
    assert (window.start, window.stop) == (MONDAY, MONDAY + timedelta(minutes=10))


def test_so_many_sensors_are_what_was_asked_for() -> None:
    assert len(Fleet(start=MONDAY, sensors=137).sensors) == 137


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(PreconditionFailed):
        fleet(start=MONDAY.replace(tzinfo=None))


def test_what_is_on_its_way_at_the_end_comes_last_and_adds_no_truth() -> None:
    until = MONDAY + timedelta(hours=8)
    *_, rest = fleet(replace(NONE, late=1.0)).windows(until)
    assert rest.start == until < rest.stop
    assert rest.frames.num_rows > 0
    truth = rest.truth
    assert [t.num_rows for t in (truth.counts(), truth.occupancy(), truth.events())] == [0, 0, 0]


# When devices send.


def test_a_report_has_as_many_events_as_the_threshold_or_is_half_an_hour_after_the_last() -> None:
    for sent in reports_of(fleet()).values():
        for (before, old), (frame, new) in pairwise(sent):
            counted = new.total_in + new.total_out - old.total_in - old.total_out
            waited = timedelta(milliseconds=frame.at - before.at)
            if new.type is ReportType.EVENTS:
                assert counted == 5
                assert waited <= timedelta(minutes=30)
            else:
                assert 0 <= counted < 5
                assert waited == timedelta(minutes=30)


def test_the_first_report_of_a_fresh_device_has_totals_of_0() -> None:
    for sent in reports_of(fleet(), MONDAY + timedelta(minutes=5)).values():
        assert (sent[0][1].total_in, sent[0][1].total_out) == (0, 0)


def test_a_status_comes_every_six_hours() -> None:
    simulated = fleet()
    at = defaultdict(list)
    for frame in simulated.frames(MONDAY + DAY):
        if frame.topic.endswith("/status"):
            at[frame.topic].append(frame.at)
    assert len(at) == len(simulated.sensors)
    for times in at.values():
        assert len(times) in (3, 4)
        assert all(later - earlier == 6 * 3_600_000 for earlier, later in pairwise(times[1:]))


def test_devices_tell_the_wall_clock_of_their_hive() -> None:
    # Through the night in which Europe changes to summer time.
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    simulated = fleet(start=start)
    zones = {hive.id: ZoneInfo(hive.time_zone) for hive in simulated.hives}
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    for serial, sent in reports_of(simulated, start + DAY).items():
        zone = zones[sensors[serial].hive_id]
        for frame, report in sent:
            there = datetime.fromtimestamp(frame.at / 1000, zone).replace(tzinfo=None)
            assert report.device_time is not None
            assert timedelta(0) <= there - report.device_time < timedelta(seconds=2)


# Configurations.


def test_a_configuration_is_obeyed_and_acknowledged() -> None:
    simulated = fleet()
    sensor = simulated.sensors[0]
    list(simulated.frames(MONDAY + DAY / 4))
    answer = simulated.configure(
        sensor.serial, SensorConfiguration(99, event_threshold=20), simulated.now
    )
    assert answer.topic == f"sensors/{sensor.serial}/status"
    assert StatusMessage.decode(answer.body, sensor.profile).configuration_id == 99
    sent = reports_of(simulated)[sensor.serial]
    counts = [
        new.total_in + new.total_out - old.total_in - old.total_out
        for (_, old), (_, new) in pairwise(sent)
        if new.type is ReportType.EVENTS
    ]
    assert set(counts) == {20}


def test_a_configuration_for_nobody_is_refused() -> None:
    with pytest.raises(NotFound):
        fleet().configure("nobody", SensorConfiguration(1), MONDAY)


def test_the_demonstration_has_fifty_different_hives() -> None:
    simulated = fleet(hives=50)
    assert len({hive.name for hive in simulated.hives}) == 50
    assert len({hive.hive_type.code for hive in simulated.hives}) == 8
    assert len({hive.time_zone for hive in simulated.hives}) == 9
    assert len({sensor.serial for sensor in simulated.sensors}) == len(simulated.sensors)
    assert {sensor.hive_id for sensor in simulated.sensors} == {hive.id for hive in simulated.hives}


def test_the_catalogue_does_not_change_with_the_size_of_the_fleet() -> None:
    assert fleet(hives=50).hives[:6] == fleet(hives=6).hives
