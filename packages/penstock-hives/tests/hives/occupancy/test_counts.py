"""Counts of decoded rows: the truth of a simulated fleet, in any batches and any order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_hives.sensors.protocol import (
    ByteOrder,
    EventType,
    FirmwareProfile,
    ReportType,
    ReportV2,
    SensorEvent,
    StatusMessage,
)
from tests.hives.occupancy.sensed import (
    NOON,
    Message,
    after,
    batch,
    counted,
    message,
    messages_of,
    profiles_of,
    report,
    run,
    sensor,
)

MONDAY = datetime(2026, 3, 9, tzinfo=UTC)
DAYS = timedelta(days=3)
TROUBLE = Quirks(restarts=0.3, outages=0.2, loss=0.03, duplicates=0.02, late=0.02, scrambled=0.001)


@cache
def simulated(quirks: Quirks, seed: int = 1) -> tuple[Fleet, list[pa.RecordBatch]]:
    fleet = Fleet(start=MONDAY, seed=seed, hives=9, quirks=quirks)
    return fleet, list(messages_of(fleet, MONDAY + DAYS))


def errors(fleet: Fleet, state: pa.Table) -> list[int]:
    """By sensor: how far the sums are from what can be known."""
    known = {row["sensor"]: row for row in fleet.ledger().to_pylist()}
    return [
        abs(row["sum_in"] - known[row["sensor"]]["known_in"])
        + abs(row["sum_out"] - known[row["sensor"]]["known_out"])
        for row in state.to_pylist()
    ]


def test_a_fleet_without_trouble_is_counted_exactly() -> None:
    fleet, batches = simulated(Quirks.none())
    assert max(errors(fleet, run(batches, profiles_of(fleet))[1])) == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fleet_in_trouble_is_counted_to_within_a_few(seed: int) -> None:
    fleet, batches = simulated(TROUBLE, seed)
    found = errors(fleet, run(batches, profiles_of(fleet))[1])
    assert sum(found) <= 4 * len(found)


def test_other_batches_give_the_same_counts_and_states() -> None:
    fleet, batches = simulated(TROUBLE)
    profiles = profiles_of(fleet)
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    rng = np.random.default_rng(1)
    cuts = np.sort(rng.integers(0, len(whole), 25)).tolist()
    parts = [
        whole.slice(begin, end - begin)
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    ]
    rows, state = run(batches, profiles)
    other_rows, other_state = run(parts, profiles)
    assert rows == other_rows
    assert state.sort_by("sensor").equals(other_state.sort_by("sensor"))


def test_rows_count_in_the_order_of_their_stream_however_they_come() -> None:
    fleet, batches = simulated(TROUBLE)
    profiles = profiles_of(fleet)
    rows = batches[20]
    shuffled = rows.take(pa.array(np.random.default_rng(2).permutation(len(rows))))
    assert run([rows], profiles)[0] == run([shuffled], profiles)[0]


def test_a_sensor_mounted_the_wrong_way_round_counts_the_right_way() -> None:
    profiles = SensorProfiles.of([sensor("s1", direction_swapped=True)])
    rows, state = run([batch([report(0, 10, 20), report(1, 13, 21)])], profiles)
    assert rows[1][1:3] == (1, 3)
    assert (state["sum_in"][0].as_py(), state["total_in"][0].as_py()) == (1, 13)


def event(offset: int, kind: EventType, counter: int) -> dict[str, object]:
    seconds = int(NOON.timestamp()) + 60 * offset
    body = SensorEvent(kind, 900, seconds, counter).encode(FirmwareProfile())
    return message(offset, body, "sensors.s1.event")


def test_events_count_one_each() -> None:
    profiles = SensorProfiles.of([sensor("s1", firmware=FirmwareProfile(event_counter=True))])
    kinds = (EventType.ENTRY, EventType.EXIT, EventType.STATUS, EventType.ENTRY)
    rows, state = run([batch([event(n, kind, n) for n, kind in enumerate(kinds)])], profiles)
    assert [row[1:3] for row in rows] == [(1, 0), (0, 1), (0, 0), (1, 0)]
    assert (state["sum_in"][0].as_py(), state["total_in"][0].as_py()) == (2, None)


def test_an_event_that_comes_twice_counts_once_and_a_lost_one_is_missed() -> None:
    profiles = SensorProfiles.of([sensor("s1", firmware=FirmwareProfile(event_counter=True))])
    first, second = event(0, EventType.ENTRY, 7), event(1, EventType.ENTRY, 9)
    rows, _ = run([batch([first, second]), batch([first | {"offset": 2}])], profiles)
    assert [row[1] for row in rows] == [1, 1, 0]
    assert [row[3] for row in rows] == [0, 1, 0]
    assert rows[2][4] == Quality.DUPLICATE


def status(offset: int, started: datetime) -> Message:
    body = StatusMessage(int(started.timestamp()), 4100, 1, 0, -80, (1, 2, 3, 4), 0).encode(
        FirmwareProfile()
    )
    return message(offset, body, "sensors.s1.status")


@pytest.mark.parametrize("cuts", [[3], [2, 1], [1, 2], [1, 1, 1]])
def test_a_restart_that_no_report_shows_is_told_by_a_status(cuts: list[int]) -> None:
    """However they are cut into batches, one of statuses alone among them."""
    sent = [report(0, 5, 1), status(1, NOON + timedelta(minutes=1)), report(30, 9, 2)]
    parts = iter(sent)
    batches = [batch(list(islice(parts, size))) for size in cuts]

    rows, state = run(batches, SensorProfiles.of([sensor("s1")]))

    assert [row[1:3] for row in rows] == [(0, 0), (9, 2)]
    assert rows[-1][4] & Quality.RESTART
    assert state["sum_in"].to_pylist() == [9]


def test_a_status_told_after_a_report_does_not_change_what_it_counted() -> None:
    sent = [report(0, 5, 1), report(30, 9, 2), status(31, NOON + timedelta(minutes=1))]
    rows, _ = run([batch(sent)], SensorProfiles.of([sensor("s1")]))
    assert [row[1:3] for row in rows] == [(0, 0), (4, 1)]


def test_a_status_of_a_sensor_that_has_never_counted_is_no_state() -> None:
    _, state = run([batch([status(0, NOON)])], SensorProfiles.of([sensor("s1")]))
    assert len(state) == 0


def test_reports_v2_tell_what_was_lost() -> None:
    profiles = SensorProfiles.of([sensor("s1")])
    seconds = int(NOON.timestamp())
    sent = [
        message(n, ReportV2(ReportType.EVENTS, counter, 0, 0, total, 0, seconds + n, 0).encode())
        for n, (counter, total) in enumerate([(65534, 100), (65535, 105), (3, 120)])
    ]
    rows, _ = run([batch(sent)], profiles)
    assert [row[3] for row in rows] == [0, 0, 3]
    assert [row[1] for row in rows] == [0, 5, 15]


def test_a_start_proves_the_byte_order_and_the_operator_is_told() -> None:
    little = FirmwareProfile(ByteOrder.LITTLE)
    profiles = SensorProfiles.of([sensor("s1")])
    sent = [
        report(0, 0, 0, ReportType.START, little),
        report(1, 3, 2, firmware=little),
        report(2, 300, 280, firmware=little, at=NOON + timedelta(hours=2)),
        report(3, 303, 282, firmware=little, at=NOON + timedelta(hours=3)),
    ]
    _, found = counted(batch(sent), profiles, SENSOR_STATE_SCHEMA.empty_table())
    assert found.delta_in.tolist() == [0, 3, 0, 300]
    assert all(found.quality & int(Quality.REORDERED))
    notice = {"sensor": "s1", "notice": "byte_order_proved", "detail": "little"}
    assert found.notices.to_pylist() == [notice]
    state = after(SENSOR_STATE_SCHEMA.empty_table(), found.states)
    later = batch([report(4, 305, 283, firmware=little, at=NOON + timedelta(hours=4))])
    _, again = counted(later, profiles, state)
    assert (again.delta_in.tolist(), len(again.notices)) == ([2], 0)


def test_old_firmware_that_starts_in_another_order_is_a_doubt_for_the_operator() -> None:
    little = FirmwareProfile(ByteOrder.LITTLE)
    sent = batch([report(0, 0, 0, ReportType.TIMER, little)])
    _, found = counted(sent, SensorProfiles.of([sensor("s1")]), SENSOR_STATE_SCHEMA.empty_table())
    assert found.notices["notice"].to_pylist() == ["byte_order_doubtful"]


def test_a_wrap_point_that_was_learned_or_excluded_is_told_once() -> None:
    profiles = SensorProfiles.of(
        [sensor("s1"), sensor("s2", firmware=FirmwareProfile(wrap_at=65503))]
    )
    sent = [
        report(0, 65502, 9),
        report(1, 1, 10),
        report(2, 65500, 9, key="sensors.s2.report"),
        report(3, 65505, 9, key="sensors.s2.report"),
    ]
    _, found = counted(batch(sent), profiles, SENSOR_STATE_SCHEMA.empty_table())
    told = {(row["sensor"], row["notice"], row["detail"]) for row in found.notices.to_pylist()}
    assert told == {("s1", "wrap_at_learned", "65503"), ("s2", "wrap_at_excluded", "65503")}


def test_the_state_shows_the_last_message_and_the_busiest_hours() -> None:
    sent = [report(n * 10, 40 * n, 39 * n) for n in range(30)]
    _, state = run([batch(sent)], SensorProfiles.of([sensor("s1", sensor_id=5)]))
    (row,) = state.to_pylist()
    assert (row["sensor_id"], row["total_in"], row["sum_in"]) == (5, 1160, 1160)
    assert row["received_at"] == NOON + timedelta(minutes=290)
    assert 400 < row["rate_p99"] < 700


def test_a_doubt_ends_with_the_next_good_report_even_in_another_batch() -> None:
    bad, worse = report(1, 40_000, 50_000), report(3, 40_002, 50_001)
    batches = [[report(0, 500, 400), bad], [report(2, 503, 402)], [worse]]
    rows, _ = run(map(batch, batches), SensorProfiles.of([sensor("s1")]))
    assert [row[4] for row in rows] == [Quality.FIRST, Quality.CORRUPT, 0, Quality.CORRUPT]


@pytest.mark.parametrize("days", [0, 1, 400])
def test_a_stale_report_with_an_impossible_date_adds_nobody(days: int) -> None:
    """Received long after newer totals, by the broker's word: it does not say itself when."""
    sent = [report(n, 400 + 3 * n, 300 + 2 * n) for n in range(40)]
    stale = bytearray(report(40, 64, 40)["body"])
    stale[8:10] = 131, 45
    late = NOON + timedelta(days=days, minutes=40)
    sent += [message(40, bytes(stale), at=late), report(41, 520, 380)]

    found, state = run([batch(sent)], SensorProfiles.of([sensor("s1")]))

    (row,) = state.to_pylist()
    assert (row["sum_in"], row["sum_out"]) == (120, 80)
    _, added_in, added_out, _, quality = found[40]
    assert (added_in, added_out) == (0, 0)
    assert Quality(quality) & (Quality.LATE | Quality.CORRUPT)
    assert Quality.CLOCK_SUSPECT in Quality(quality)


#: Whatever is sent as a report, an event or a status: mostly of a length that makes it one.
bodies = st.one_of(
    *(st.binary(min_size=length, max_size=length) for length in (8, 15, 20, 59)),
    st.builds(
        lambda totals, date, kind: totals[:4] + totals + date + kind + bytes(44),
        st.binary(min_size=4, max_size=4),
        st.binary(min_size=6, max_size=6),
        st.sampled_from([b"\xff", b"\x20", b"\x21"]),
    ),
    st.builds(
        lambda said: ReportV2(ReportType.EVENTS, *said).encode(),
        st.tuples(
            *(st.integers(0, 65_535) for _ in range(3)),
            *(st.integers(0, (1 << 32) - 1) for _ in range(3)),
            st.integers(-128, 127),
        ),
    ),
    st.binary(max_size=80),
)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["report", "report", "status", "event"]), bodies), max_size=25
    ),
    st.integers(0, 25),
)
def test_no_message_however_strange_keeps_others_from_being_counted(
    strange: list[tuple[str, bytes]], cut: int
) -> None:
    """A sensor gone mad, and one beside it that counts; in one batch or two."""
    profiles = SensorProfiles.of([sensor("mad"), sensor("s1")])
    sent = [
        message(2 * n, body, f"sensors.mad.{kind}") for n, (kind, body) in enumerate(strange)
    ] + [report(2 * n + 1, 100 + n, 90 + n) for n in range(25)]
    sent.sort(key=lambda each: int(each["offset"]))

    _, state = run([batch(sent[:cut]), batch(sent[cut:])], profiles)

    counts = {row["sensor"]: (row["sum_in"], row["sum_out"]) for row in state.to_pylist()}
    assert counts["s1"] == (24, 24)
