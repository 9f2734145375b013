"""What the fleet says of itself is what its frames say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from penstock_hives.sensors.fleet import Quirks
from penstock_hives.sensors.protocol import (
    EventType,
    SensorEvent,
    SensorMessageKind,
    SensorTopic,
)
from tests.hives.sensors.simulated import (
    DAY,
    MONDAY,
    NONE,
    SATURDAY,
    assert_readable,
    fleet,
    ledger_of,
    reports_of,
)


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
        if topic.kind is SensorMessageKind.EVENT:
            sensor = sensors[topic.serial]
            kind = SensorEvent.decode(frame.body, sensor.profile).type
            known[topic.serial, EventType(1 - kind) if sensor.direction_swapped else kind] += 1
    for serial, row in ledger_of(simulated).items():
        assert known[serial, EventType.ENTRY] == row["known_in"]
        assert known[serial, EventType.EXIT] == row["known_out"]
        assert row["open_in"] == row["open_out"] == 0
        assert row["known_in"] + row["lost_in"] == row["counted_in"]
