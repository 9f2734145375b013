"""The simulated fleet: frames that are what the truth says, and quirks that do what they say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed
from penstock.hives.sensors.fleet import Fleet, Frame, Quirks, Sensor
from penstock.hives.sensors.messages import (
    Configuration,
    Event,
    EventType,
    Kind,
    MalformedFrame,
    Protocol,
    Report,
    Report2,
    ReportType,
    SensorTopic,
    Status,
    decode_report,
)

SATURDAY = datetime(2026, 3, 7, tzinfo=UTC)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY = timedelta(days=1)
NONE = Quirks.none()

Sent = dict[str, list[tuple[Frame, Report | Report2]]]


def fleet(quirks: Quirks = NONE, hives: int = 6, seed: int = 1, start: datetime = MONDAY) -> Fleet:
    return Fleet(start=start, seed=seed, hives=hives, quirks=quirks)


def reports_of(simulated: Fleet, until: datetime = MONDAY + DAY) -> Sent:
    """What each sensor reports, in order of arrival; all of it must be readable."""
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    found = defaultdict(list)
    for frame in simulated.frames(until):
        topic = SensorTopic.parse(frame.topic)
        if topic.kind is Kind.REPORT:
            report = decode_report(frame.body, sensors[topic.serial].profile)
            found[topic.serial].append((frame, report))
    return found


def ledger_of(simulated: Fleet) -> dict[str, dict[str, Any]]:
    return {row["sensor"]: row for row in simulated.ledger().to_pylist()}


def totals(report: Report | Report2, sensor: Sensor) -> tuple[int, int]:
    """In and out, the right way round."""
    both = (report.total_in, report.total_out)
    return both[::-1] if sensor.direction_swapped else both


def rises(sent: Sent) -> list[int]:
    """By how much the entries of one report exceed those of the one before."""
    return [
        new.total_in - old.total_in
        for each in sent.values()
        for (_, old), (_, new) in pairwise(each)
    ]


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


# The truth.


def test_without_quirks_reports_tell_all_but_what_is_still_to_come() -> None:
    simulated = fleet()
    sent = reports_of(simulated)
    for serial, row in ledger_of(simulated).items():
        last = sent[serial][-1][1]
        assert (last.total_in, last.total_out) == (row["known_in"], row["known_out"])
        assert row["lost_in"] == row["lost_out"] == 0
        assert row["open_in"] + row["open_out"] < 5
        assert row["counted_in"] == row["known_in"] + row["open_in"]


def test_counts_by_slot_and_people_one_by_one_are_the_same_truth() -> None:
    simulated = fleet(Quirks())
    counts: dict[Any, int] = defaultdict(int)
    events: dict[Any, int] = defaultdict(int)
    by_sensor: dict[str, int] = defaultdict(int)
    for window in simulated.windows(MONDAY + DAY):
        for row in window.truth.counts().to_pylist():
            counts[row["slot"], row["sensor"], True] += row["entries"]
            counts[row["slot"], row["sensor"], False] += row["exits"]
            by_sensor[row["sensor"]] += row["entries"]
        for row in window.truth.events().to_pylist():
            slot = datetime.fromtimestamp(row["at"].timestamp() // 300 * 300, UTC)
            events[slot, row["sensor"], row["entry"]] += 1
    assert sum(events.values()) > 1000
    assert {key: count for key, count in counts.items() if count} == events
    assert {s: row["counted_in"] for s, row in ledger_of(simulated).items()} == by_sensor | {
        s: 0 for s in ledger_of(simulated) if s not in by_sensor
    }


def test_who_came_and_did_not_leave_is_inside() -> None:
    simulated = fleet()
    hive_of = {sensor.serial: sensor.hive_id for sensor in simulated.sensors}
    inside: dict[int, int] = defaultdict(int)
    most: dict[int, int] = defaultdict(int)
    for window in simulated.windows(MONDAY + DAY, slots=1):
        for row in window.truth.counts().to_pylist():
            inside[hive_of[row["sensor"]]] += row["entries"] - row["exits"]
        for row in window.truth.occupancy().to_pylist():
            assert row["occupancy"] == inside[row["hive_id"]]
            most[row["hive_id"]] = max(most[row["hive_id"]], row["occupancy"])
    for hive in simulated.hives:
        assert 0.3 * hive.capacity < most[hive.id] <= hive.capacity


def test_nobody_comes_when_it_is_closed() -> None:
    simulated = fleet(hives=5, start=SATURDAY)
    hive_of = {sensor.serial: simulated.hives[sensor.hive_id - 1] for sensor in simulated.sensors}
    for window in simulated.windows(SATURDAY + DAY, slots=288):
        for row in window.truth.counts().to_pylist():
            hive = hive_of[row["sensor"]]
            local = row["slot"].astimezone(ZoneInfo(hive.time_zone))
            if hive.hive_type.code == "office" and local.weekday() >= 5:
                assert row["entries"] == 0


def deltas(sent: list[tuple[Frame, Report | Report2]], sensor: Sensor) -> tuple[int, int]:
    """What a careful reader makes of reports in order, if restarts are flagged."""
    known = [0, 0]
    old = totals(sent[0][1], sensor)
    for _, report in sent[1:]:
        new = totals(report, sensor)
        if report.type is ReportType.START:
            old = (0, 0)
        for way in range(2):
            wrap_at = sensor.profile.wrap_at or (1 << 32) - 1
            known[way] += (new[way] - old[way]) % (wrap_at + 1)
        old = new
    return known[0], known[1]


def assert_readable(simulated: Fleet, until: datetime) -> None:
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    sent = reports_of(simulated, until)
    assert sent
    ledger = ledger_of(simulated)
    for serial, reports in sent.items():
        row = ledger[serial]
        assert deltas(reports, sensors[serial]) == (row["known_in"], row["known_out"])


def test_losses_and_outages_lose_time_but_no_counts() -> None:
    simulated = fleet(replace(NONE, loss=0.2, outages=2.0, wraps=True, v2=0.3))
    assert_readable(simulated, MONDAY + 2 * DAY)
    assert sum(row["lost_in"] for row in ledger_of(simulated).values()) == 0


def test_a_restart_loses_what_was_not_told() -> None:
    simulated = fleet(replace(NONE, restarts=6.0, flagged_restarts=1.0, v2=0.3))
    assert_readable(simulated, MONDAY + 2 * DAY)
    assert sum(row["lost_in"] for row in ledger_of(simulated).values()) > 0


def test_totals_wrap_where_the_profile_says() -> None:
    simulated = fleet(replace(NONE, wraps=True), hives=40)
    sent = reports_of(simulated, MONDAY + 2 * DAY)
    falls = sum(
        new.total_in < old.total_in
        for each in sent.values()
        for (_, old), (_, new) in pairwise(each)
    )
    assert falls > 0
    assert {sensor.profile.wrap_at for sensor in simulated.sensors} == {65503, 65523, 65535}


def test_where_totals_wrap_may_be_unknown() -> None:
    simulated = fleet(replace(NONE, wraps=True, unknown_wraps=True))
    assert {sensor.profile.wrap_at for sensor in simulated.sensors} == {None}


def test_events_tell_who_arrived() -> None:
    simulated = fleet(replace(NONE, event=1.0, loss=0.1, swapped=0.5, little_endian=0.5))
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    known: dict[tuple[str, EventType], int] = defaultdict(int)
    for frame in simulated.frames(MONDAY + DAY):
        topic = SensorTopic.parse(frame.topic)
        if topic.kind is Kind.EVENT:
            sensor = sensors[topic.serial]
            kind = Event.decode(frame.body, sensor.profile).type
            known[topic.serial, EventType(1 - kind) if sensor.direction_swapped else kind] += 1
    for serial, row in ledger_of(simulated).items():
        assert known[serial, EventType.ENTRY] == row["known_in"]
        assert known[serial, EventType.EXIT] == row["known_out"]
        assert row["open_in"] == row["open_out"] == 0
        assert row["known_in"] + row["lost_in"] == row["counted_in"]


# Quirks, one at a time.


def test_byte_orders_and_directions_are_as_the_catalogue_says() -> None:
    assert_readable(fleet(replace(NONE, little_endian=0.5, swapped=0.5)), MONDAY + DAY)


def test_the_32_can_be_left_out() -> None:
    simulated = fleet(replace(NONE, plus_32=False))
    assert not any(sensor.profile.plus_32 for sensor in simulated.sensors)
    assert_readable(simulated, MONDAY + DAY)


def test_v2_counts_its_messages_and_its_diffs_add_up() -> None:
    simulated = fleet(replace(NONE, v2=1.0, restarts=2.0))
    assert {sensor.protocol for sensor in simulated.sensors} == {Protocol.V2}
    for sent in reports_of(simulated).values():
        for (_, old), (_, new) in pairwise(sent):
            assert isinstance(old, Report2)
            assert isinstance(new, Report2)
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
        decode = {Kind.REPORT: decode_report, Kind.EVENT: Event.decode, Kind.STATUS: Status.decode}
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


# Configurations.


def test_a_configuration_is_obeyed_and_acknowledged() -> None:
    simulated = fleet()
    sensor = simulated.sensors[0]
    list(simulated.frames(MONDAY + DAY / 4))
    answer = simulated.configure(
        sensor.serial, Configuration(99, event_threshold=20), simulated.now
    )
    assert answer.topic == f"sensors/{sensor.serial}/status"
    assert Status.decode(answer.body, sensor.profile).configuration_id == 99
    sent = reports_of(simulated)[sensor.serial]
    counts = [
        new.total_in + new.total_out - old.total_in - old.total_out
        for (_, old), (_, new) in pairwise(sent)
        if new.type is ReportType.EVENTS
    ]
    assert set(counts) == {20}


def test_a_configuration_for_nobody_is_refused() -> None:
    with pytest.raises(NotFound):
        fleet().configure("nobody", Configuration(1), MONDAY)


# Names.


def test_quirks_are_changed_by_name() -> None:
    assert NONE.changed(["loss=0.1", "wraps=on"]) == replace(NONE, loss=0.1, wraps=True)
    assert Quirks().changed(["loss=off"]).loss == 0


@pytest.mark.parametrize("pair", ["rust=1", "loss", "loss=much", "loss=2", "corrupt=0.995"])
def test_quirks_that_cannot_be_are_refused(pair: str) -> None:
    with pytest.raises(ConfigurationError):
        Quirks().changed([pair])


def test_the_demonstration_has_fifty_different_hives() -> None:
    simulated = fleet(hives=50)
    assert len({hive.name for hive in simulated.hives}) == 50
    assert len({hive.hive_type.code for hive in simulated.hives}) == 8
    assert len({hive.time_zone for hive in simulated.hives}) == 9
    assert len({sensor.serial for sensor in simulated.sensors}) == len(simulated.sensors)
    assert {sensor.hive_id for sensor in simulated.sensors} == {hive.id for hive in simulated.hives}


def test_the_catalogue_does_not_change_with_the_size_of_the_fleet() -> None:
    assert fleet(hives=50).hives[:6] == fleet(hives=6).hives
