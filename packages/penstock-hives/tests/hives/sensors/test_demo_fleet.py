"""A fleet that goes on where it was, through breaks of any length."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock_hives.sensors.fleet import Fleet, SensorFrame
from penstock_hives.sensors.publisher import FramePacer
from penstock_hives.sensors.simulation import MAX_RESUME, DemoFleet, DemoState, DemoStateFile

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PAST = timedelta(hours=2)


class Desk:
    """Takes frames instead of a broker."""

    def __init__(self) -> None:
        self.frames: list[SensorFrame] = []
        self.flushed = 0

    async def send(self, frame: SensorFrame) -> None:
        self.frames.append(frame)

    async def flush(self) -> None:
        self.flushed = len(self.frames)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


async def run(diary: DemoStateFile, now: datetime, desk: Desk) -> None:
    """Until the past is told."""
    shown = DemoFleet(diary, now, PAST, hives=3)
    told = asyncio.Event()
    work = shown.send(desk, desk, FramePacer(ms(now), 1.0), told.set)  # type: ignore[arg-type]
    sending = asyncio.create_task(work)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({sending, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (sending, waiting):
        task.cancel()
    await asyncio.gather(sending, waiting, return_exceptions=True)


@pytest.fixture
def diary(tmp_path: Path) -> DemoStateFile:
    return DemoStateFile(tmp_path / "demo.json")


def frames(until: datetime) -> list[SensorFrame]:
    """What the fleet sends from its beginning."""
    fleet = Fleet(start=NOW - PAST, hives=3)
    until_ms = ms(until)
    found: list[SensorFrame] = []
    for frame in fleet.frames(slots=1):
        if frame.at > until_ms:
            return found
        found.append(frame)
    return found


async def test_a_new_fleet_tells_its_past_and_remembers_it(diary: DemoStateFile) -> None:
    desk = Desk()
    await run(diary, NOW, desk)
    assert desk.frames == frames(NOW)
    assert desk.flushed == len(desk.frames)
    assert diary.read() == DemoState(0, 3, ms(NOW - PAST), desk.frames[-1].at)


async def test_after_a_break_it_tells_what_it_has_not(diary: DemoStateFile) -> None:
    first, second = Desk(), Desk()
    await run(diary, NOW, first)
    later = NOW + timedelta(hours=1)
    await run(diary, later, second)
    told = [*first.frames, *(each for each in second.frames if each.at > first.frames[-1].at)]
    assert told == frames(later)


async def test_a_break_longer_than_its_past_is_an_outage(diary: DemoStateFile) -> None:
    await run(diary, NOW, Desk())
    later, desk = NOW + timedelta(days=2), Desk()
    await run(diary, later, desk)
    assert ms(later - PAST) <= desk.frames[0].at
    assert desk.frames == [each for each in frames(later) if each.at >= ms(later - PAST)]


async def test_after_a_month_it_begins_anew(diary: DemoStateFile) -> None:
    await run(diary, NOW, Desk())
    later = NOW + MAX_RESUME
    await run(diary, later, Desk())
    entry = diary.read()
    assert entry is not None
    assert entry.start == ms(later - PAST)


def test_a_diary_that_cannot_be_made_out_is_none(diary: DemoStateFile) -> None:
    diary.path.write_text('{"seed": ')
    assert diary.read() is None
    diary.path.write_text('{"seed": 1}')
    assert diary.read() is None
