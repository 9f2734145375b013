"""Whether a connection is read from: every reason to stop holds until it is gone, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.buckets import BUCKET_BYTES
from penstock.broker.flow_control import (
    LARGE_READ_BYTES,
    MAX_UNREAD_BYTES,
    READ_BYTES,
    RECEIVE_WINDOW_BYTES,
    ReadFlowControl,
)
from penstock.broker.host import Alarms
from tests.doubles import Stand


class Transport:
    def __init__(self) -> None:
        self.reading = True
        self.closing = False
        self.max_size = READ_BYTES

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing


class Host:
    def __init__(self, stand: Stand) -> None:
        self.kernel = stand.kernel
        self.alarms = Alarms(lambda: None)


class Terminal:
    """As far as reading from its socket goes."""

    def __init__(self, stand: Stand) -> None:
        self.host: Any = Host(stand)
        self.transport: Any = Transport()
        self.output: Any = None
        self.name = "peer"
        self.published = 0
        self.closing = False
        self.held = False
        self.unread_bytes = 0
        self.told: list[str] = []
        self.looked = 0
        self.flow_control = ReadFlowControl(self)

    def data_received(self, data: bytes) -> None:
        assert data == b""
        self.looked += 1

    def blocking(self, reason: str) -> None:
        self.told.append(reason)

    def unblocking(self) -> None:
        self.told.append("go on")

    def is_read(self) -> bool:
        assert self.flow_control.reading == self.transport.reading
        return self.flow_control.reading


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    stand = Stand(tmp_path)
    yield Terminal(stand)
    await stand.close()


async def a_moment() -> None:
    """What was to happen soon has happened."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


# Alarms.


async def test_who_has_published_waits_while_an_alarm_sounds(terminal: Terminal) -> None:
    terminal.published = 1
    terminal.host.alarms.set("disk", "the disk is full")
    terminal.flow_control.alarms_changed()
    assert not terminal.is_read()
    assert terminal.told == ["the disk is full"]
    terminal.host.alarms.clear("disk")
    terminal.flow_control.alarms_changed()
    assert terminal.is_read()
    assert terminal.told[1:] == ["go on"]
    assert terminal.host.kernel.metrics.blocked == 0


async def test_who_has_not_published_is_left_alone(terminal: Terminal) -> None:
    terminal.host.alarms.set("disk", "full")
    terminal.flow_control.alarms_changed()
    assert terminal.is_read()


async def test_who_publishes_during_an_alarm_waits_from_then_on(terminal: Terminal) -> None:
    terminal.host.alarms.set("disk", "full")
    terminal.published = 1
    terminal.flow_control.check_limits()
    assert not terminal.is_read()


async def test_a_second_alarm_is_not_told_again(terminal: Terminal) -> None:
    terminal.published = 1
    terminal.host.alarms.set("disk", "full")
    terminal.flow_control.alarms_changed()
    terminal.host.alarms.set("memory", "full too")
    terminal.flow_control.alarms_changed()
    terminal.host.alarms.clear("disk")
    terminal.flow_control.alarms_changed()
    assert terminal.told == ["full"]
    assert not terminal.is_read()


async def test_one_that_leaves_while_it_waits_is_counted_no_more(terminal: Terminal) -> None:
    terminal.published = 1
    terminal.host.alarms.set("disk", "full")
    terminal.flow_control.alarms_changed()
    terminal.flow_control.end()
    terminal.flow_control.end()
    assert terminal.host.kernel.metrics.blocked == 0


# Memory.


async def test_a_spent_budget_stops_publishers_until_it_is_relieved(terminal: Terminal) -> None:
    pool = terminal.host.kernel.pool
    pool.charge(pool.budget)
    terminal.flow_control.check_limits()
    assert not terminal.is_read()
    pool.discharge(pool.budget)
    await a_moment()
    assert terminal.is_read()


# Large messages.


async def test_a_full_window_of_buckets_stops_reading_until_half_is_on_disk(
    terminal: Terminal,
) -> None:
    account = terminal.flow_control.account
    buckets = []
    while not account.spent:
        buckets.append(account.take())
    terminal.flow_control.check_limits()
    assert not terminal.is_read()
    while account.used > RECEIVE_WINDOW_BYTES // 2:
        assert not terminal.is_read()
        buckets.pop().release()
        await a_moment()
    assert terminal.is_read()
    for bucket in buckets:
        bucket.release()
    assert account.used == 0


async def test_a_held_terminal_goes_on_when_all_is_on_disk(terminal: Terminal) -> None:
    first, second = terminal.flow_control.account.take(), terminal.flow_control.account.take()
    terminal.flow_control.hold()
    assert not terminal.is_read()
    first.release()
    await a_moment()
    assert (terminal.held, terminal.is_read()) == (True, False)
    second.release()
    await a_moment()
    assert (terminal.held, terminal.is_read()) == (False, True)
    assert terminal.looked == 1, "what was read before is looked at now"


async def test_who_has_much_to_say_is_read_more_from_at_a_time(terminal: Terminal) -> None:
    terminal.flow_control.adapt_read_size(READ_BYTES)
    assert (terminal.flow_control.wide, terminal.transport.max_size) == (True, LARGE_READ_BYTES)
    terminal.flow_control.adapt_read_size(LARGE_READ_BYTES)
    assert terminal.transport.max_size == LARGE_READ_BYTES
    terminal.flow_control.adapt_read_size(100)
    assert (terminal.flow_control.wide, terminal.transport.max_size) == (False, READ_BYTES)


async def test_reads_are_smaller_in_the_middle_of_bulk(terminal: Terminal) -> None:
    terminal.flow_control.adapt_read_size(READ_BYTES)
    terminal.flow_control.expect_bulk(True)
    assert terminal.transport.max_size == READ_BYTES
    terminal.flow_control.adapt_read_size(READ_BYTES)
    assert terminal.transport.max_size == READ_BYTES


# Answers.


async def test_who_does_not_read_its_answers_is_not_read_from(terminal: Terminal) -> None:
    terminal.unread_bytes = MAX_UNREAD_BYTES + 1
    assert terminal.flow_control.is_unread
    terminal.flow_control.pause()
    terminal.flow_control.resume()
    assert not terminal.is_read()
    terminal.unread_bytes = 0
    terminal.flow_control.resume()
    assert terminal.is_read()


# Several reasons.


async def test_it_goes_on_when_the_last_reason_is_gone(terminal: Terminal) -> None:
    terminal.published = 1
    bucket = terminal.flow_control.account.take()
    terminal.flow_control.hold()
    terminal.host.alarms.set("disk", "full")
    terminal.flow_control.alarms_changed()
    terminal.unread_bytes = MAX_UNREAD_BYTES + 1
    bucket.release()
    await a_moment()
    assert not terminal.is_read()
    terminal.unread_bytes = 0
    terminal.flow_control.resume()
    assert not terminal.is_read()
    terminal.host.alarms.clear("disk")
    terminal.flow_control.alarms_changed()
    assert terminal.is_read()


async def test_one_that_is_closing_is_not_read_from_again(terminal: Terminal) -> None:
    terminal.flow_control.pause()
    terminal.closing = True
    terminal.flow_control.resume()
    assert not terminal.is_read()


async def test_a_transport_that_is_gone_is_left_alone(terminal: Terminal) -> None:
    terminal.transport.closing = True
    terminal.flow_control.pause()
    assert terminal.is_read()


async def test_reopening_asks_for_no_reason(terminal: Terminal) -> None:
    terminal.published = 1
    terminal.host.alarms.set("disk", "full")
    terminal.flow_control.alarms_changed()
    terminal.flow_control.reopen()
    assert terminal.is_read()
    assert not terminal.held


async def test_a_bucket_is_what_it_is_said_to_be(terminal: Terminal) -> None:
    bucket = terminal.flow_control.account.take()
    assert terminal.flow_control.has_pending_buckets
    assert terminal.flow_control.account.used == BUCKET_BYTES
    bucket.release()
    assert not terminal.flow_control.has_pending_buckets


async def test_who_gives_way_goes_on_after_others(stand: Stand) -> None:
    terminal = Terminal(stand)
    flow_control = ReadFlowControl(terminal)
    flow_control.defer_rest()
    flow_control.defer_rest()
    assert (terminal.held, terminal.transport.reading) == (True, False)
    await asyncio.sleep(0)
    assert (terminal.held, terminal.transport.reading) == (False, True)
    assert terminal.looked == 1
