"""Fleets for tests, and a careful reader of what they send."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from penstock_hives.sensors.fleet import Fleet, Quirks, SensorFrame, SimulatedSensor
from penstock_hives.sensors.protocol import (
    ReportType,
    ReportV1,
    ReportV2,
    SensorMessageKind,
    SensorTopic,
    decode_report,
)

SATURDAY = datetime(2026, 3, 7, tzinfo=UTC)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY = timedelta(days=1)
NONE = Quirks.none()

Sent = dict[str, list[tuple[SensorFrame, ReportV1 | ReportV2]]]


def fleet(quirks: Quirks = NONE, hives: int = 6, seed: int = 1, start: datetime = MONDAY) -> Fleet:
    return Fleet(start=start, seed=seed, hives=hives, quirks=quirks)


def reports_of(simulated: Fleet, until: datetime = MONDAY + DAY) -> Sent:
    """What each sensor reports, in order of arrival; all of it must be readable."""
    sensors = {sensor.serial: sensor for sensor in simulated.sensors}
    found = defaultdict(list)
    for frame in simulated.frames(until):
        topic = SensorTopic.parse(frame.topic)
        if topic.kind is SensorMessageKind.REPORT:
            report = decode_report(frame.body, sensors[topic.serial].profile)
            found[topic.serial].append((frame, report))
    return found


def ledger_of(simulated: Fleet) -> dict[str, dict[str, Any]]:
    return {row["sensor"]: row for row in simulated.ledger().to_pylist()}


def totals(report: ReportV1 | ReportV2, sensor: SimulatedSensor) -> tuple[int, int]:
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


def deltas(
    sent: list[tuple[SensorFrame, ReportV1 | ReportV2]], sensor: SimulatedSensor
) -> tuple[int, int]:
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
