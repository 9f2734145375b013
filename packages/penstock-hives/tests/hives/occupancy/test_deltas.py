"""Deltas by the column: those of the rules, in any batches."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock_hives.occupancy import sensor_states
from penstock_hives.occupancy.counter_rules import CounterReading, CounterState, apply_reading
from penstock_hives.occupancy.deltas import Deltas, ReportColumns, compute_deltas
from penstock_hives.occupancy.device_clock import HOUR_MICROS, SECOND_MICROS
from penstock_hives.occupancy.event_rates import EventRate
from penstock_hives.occupancy.sensor_states import (
    COUNTER_FIELDS,
    NO_CLOCK,
    SENSOR_STATE_SCHEMA,
    ReadingColumns,
    SensorStates,
)

SENSORS = 3
SERIALS = pa.array([f"s{number}" for number in range(SENSORS)])
START = 500_000 * HOUR_MICROS

Row = tuple[int, CounterReading, int, int]  # sensor, report, told top, last start that was told
Told = tuple[int, int, int]


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Reports of sensors that count, wrap, start again, repeat themselves, and worse."""
    rows: list[Row] = []
    for sensor in range(SENSORS):
        top = draw(st.sampled_from((65503, 65523, 65535)))
        told = draw(st.sampled_from((-1, top)))
        totals = [draw(st.integers(0, top)), draw(st.integers(0, top))]
        at, boot = START, -1
        sent: list[CounterReading] = []
        for _ in range(draw(st.integers(0, 40))):
            at += draw(
                st.sampled_from(
                    (SECOND_MICROS, 60 * SECOND_MICROS, HOUR_MICROS // 2, 3 * HOUR_MICROS)
                )
            )
            grown = draw(st.sampled_from((0, 1, 3, 30, 70, 400)))
            kind = draw(
                st.sampled_from(("more",) * 12 + ("again", "late", "bad", "restart", "set"))
            )
            start = False
            if kind == "restart":
                totals, start = [0, 0], draw(st.booleans())
                boot = draw(st.sampled_from((boot, at, at - SECOND_MICROS)))
            totals = [(total + draw(st.integers(0, grown))) % (top + 1) for total in totals]
            clock = at - (HOUR_MICROS if kind == "set" else 0)
            reading = CounterReading(totals[0], totals[1], clock, clock, at, start)
            if kind == "bad":
                bad = (draw(st.integers(0, 65535)), draw(st.integers(0, 65535)))
                reading = reading._replace(total_in=bad[0], total_out=bad[1])
            elif kind in ("again", "late") and sent:
                reading = draw(st.sampled_from(sent[-4:]))._replace(received=at)
            elif draw(st.integers(0, 20)) == 0:
                reading = reading._replace(clock=NO_CLOCK, utc=at)
            sent.append(reading)
            rows.append((sensor, reading, told, boot))
    return rows


def stepped(rows: list[Row]) -> tuple[list[Told], list[CounterState]]:
    """The obvious way: each report by the rules, from the first to the last."""
    found: list[Told] = []
    knows = [CounterState() for _ in range(SENSORS)]
    for sensor, group in groupby(rows, key=lambda row: row[0]):
        known, rate = knows[sensor], EventRate()

        def busy(known: CounterState = known, rate: EventRate = rate) -> int:
            return rate.percentile(known.last.received) if known.last else 0

        for _, reading, told, boot in group:
            known.profile_top, known.boot = told, boot
            one = apply_reading(known, reading, busy)
            if one.accepted:
                rate.observe(reading.received, one.delta_in + one.delta_out)
            found.append((one.delta_in, one.delta_out, int(one.quality)))
    return found, knows


def reports(rows: list[Row]) -> ReportColumns:
    columns = zip(*(row[1][:5] for row in rows), strict=True) if rows else [()] * 5
    return ReportColumns(
        np.array([row[0] for row in rows], np.int64),
        ReadingColumns(*(np.array(column, np.int64) for column in columns)),
        np.array([row[1].start for row in rows], bool),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.int64),
    )


def told(deltas: Deltas) -> list[Told]:
    columns = (deltas.delta_in, deltas.delta_out, deltas.quality)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def kept(states: SensorStates) -> SensorStates:
    """As the next batch finds them: through the rows of the database."""
    states.received[:] = states.at[:] = START
    rows = sensor_states.save_states(states, SERIALS, np.arange(SENSORS))
    return sensor_states.load_states(pa.Table.from_batches([rows]), SERIALS)


@given(histories())
@settings(max_examples=75)
def test_columns_tell_what_the_rules_tell(rows: list[Row]) -> None:
    assert told(compute_deltas(reports(rows), SensorStates.unknown(SENSORS))) == stepped(rows)[0]


@given(histories(), st.lists(st.integers(0, 40), max_size=4))
@settings(max_examples=75)
def test_any_batches_tell_and_remember_the_same(rows: list[Row], cuts: list[int]) -> None:
    """Each sensor's reports are cut at the same places; a batch has those of all sensors."""
    place = [sum(1 for other in rows[:n] if other[0] == row[0]) for n, row in enumerate(rows)]
    found: dict[int, Told] = {}
    states = sensor_states.load_states(SENSOR_STATE_SCHEMA.empty_table(), SERIALS)
    for begin, end in pairwise([0, *sorted(cuts), 1000]):
        chosen = [n for n in range(len(rows)) if begin <= place[n] < end]
        answers = told(compute_deltas(reports([rows[n] for n in chosen]), states))
        found.update(zip(chosen, answers, strict=True))
        states = kept(states)
    expected, knows = stepped(rows)
    assert [found[n] for n in range(len(rows))] == expected
    for sensor, known in enumerate(knows):
        _assert_known(states, sensor, known)


@given(histories())
@settings(max_examples=40)
def test_states_survive_the_database(rows: list[Row]) -> None:
    states = SensorStates.unknown(SENSORS)
    compute_deltas(reports(rows), states)
    states.recent = np.arange(5, dtype=np.uint64)
    states.recent_of = np.array([0, 0, 2, 2, 2])
    again = kept(states)
    _assert_same(states, again)


def test_memories_of_the_first_version_are_read_with_nothing_in_what_is_new() -> None:
    states = SensorStates.unknown(SENSORS)
    states.seen[:], states.boot[:], states.surplus_in[:] = 77, START, 3
    states.recent, states.recent_of = np.arange(4, dtype=np.uint64), np.array([0, 1, 1, 2])
    saved = sensor_states.save_states(states, SERIALS, np.arange(SENSORS)).to_pylist()
    older, newer = (sensor_states.MEMORY_HEADERS[version].itemsize for version in (1, 2))
    for row in saved[::2]:  # the first and the last
        row["memory"] = b"\x01" + row["memory"][1:older] + row["memory"][newer:]

    again = sensor_states.load_states(pa.Table.from_pylist(saved, SENSOR_STATE_SCHEMA), SERIALS)

    assert again.seen.tolist() == [77, 77, 77]
    assert again.boot.tolist() == [-1, START, -1]
    assert again.surplus_in.tolist() == [0, 3, 0]
    assert again.recent.tolist() == [0, 1, 2, 3]
    assert again.recent_of.tolist() == [0, 1, 1, 2]


def test_a_memory_of_a_version_nobody_knows_is_refused() -> None:
    saved = sensor_states.save_states(
        SensorStates.unknown(SENSORS), SERIALS, np.arange(SENSORS)
    ).to_pylist()
    saved[1]["memory"] = b"\x09" + saved[1]["memory"][1:]

    with pytest.raises(PreconditionFailed, match="version"):
        sensor_states.load_states(pa.Table.from_pylist(saved, SENSOR_STATE_SCHEMA), SERIALS)


def _assert_known(states: SensorStates, sensor: int, known: CounterState) -> None:
    nothing = (-1,) * 5
    assert _row(states.last, sensor) == (known.last[:5] if known.last else nothing)
    assert _row(states.suspect, sensor) == (known.suspect[:5] if known.suspect else nothing)
    assert _row(states.former, sensor) == (known.former[:5] if known.former else nothing)
    for name in COUNTER_FIELDS:
        assert getattr(states, name)[sensor] == getattr(known, name), name
    assert (states.seen[sensor], states.learned_top[sensor]) == (known.seen, known.learned_top)
    assert states.settled[sensor] == known.settled


def _row(readings: ReadingColumns, sensor: int) -> tuple[int, ...]:
    return tuple(int(getattr(readings, each.name)[sensor]) for each in fields(readings))


def _assert_same(one: Any, other: Any) -> None:
    for each in fields(one):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, each.name)
        else:
            _assert_same(left, right)
