"""Room for parts: given back when those they are for have them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.client import FabricClosed
from penstock_pump.errors import SourceMissing
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.subscription import PumpSubscription
from penstock_pump.part_quota import PartQuota
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostReport, write_report

URL = "http://pump/"


def report(path: str, code: int = 201, base_url: str = URL, reader: str = "a") -> PostReport:
    post = Post(moment=0, base_url=base_url, relpath=path)
    return PostReport(post, code, "", "box", "me", 0.1, reader)


class Given:
    """Keeps `PumpSubscription` for reports, and `Heard`: notes which were acknowledged."""

    def __init__(self, *told: PostReport) -> None:
        encoded = [write_report(each) for each in told]
        self.heard = [
            Once(PumpMessage("v02.report", str(each.body).encode(), each.headers))
            for each in encoded
        ]
        self.taken = asyncio.Event()

    async def receive(self) -> list[Once]:
        if self.taken.is_set():
            raise FabricClosed("no more")
        self.taken.set()
        return self.heard

    @property
    def acked(self) -> list[bool]:
        return [each.acked for each in self.heard]


class Once:
    def __init__(self, pump_message: PumpMessage) -> None:
        self.pump_message = pump_message
        self.acked = False

    async def ack(self) -> None:
        self.acked = True


async def held(part_quota: PartQuota, path: Path, size: int) -> None:
    async with part_quota.reserve(path, size):
        path.write_bytes(b"x" * size)


async def test_a_part_waits_until_another_has_gone(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100)
    await held(part_quota, tmp_path / "f.0.Part", 80)
    waiting = asyncio.create_task(held(part_quota, tmp_path / "f.1.Part", 80))
    await asyncio.sleep(0)
    assert not (tmp_path / "f.1.Part").exists()
    await part_quota.handle_report(report("f.0.Part"))
    async with asyncio.timeout(60):
        await waiting
    assert not (tmp_path / "f.0.Part").exists()
    assert part_quota.bytes == 80


async def test_all_its_readers_have_to_have_it(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100, readers=2)
    await held(part_quota, tmp_path / "f.Part", 10)
    await part_quota.handle_report(report("f.Part", 304, reader="a"))
    assert part_quota.bytes == 10
    await part_quota.handle_report(report("f.Part", reader="b"))
    assert part_quota.bytes == 0


async def test_who_reports_twice_is_one_reader(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100, readers=2)
    await held(part_quota, tmp_path / "f.Part", 10)
    for _ in range(3):
        assert await part_quota.handle_report(report("f.Part", reader="a"))
    assert (tmp_path / "f.Part").exists()


async def test_reports_without_a_reader_are_told_apart_by_host_and_user(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100, readers=2)
    await held(part_quota, tmp_path / "f.Part", 10)
    first = report("f.Part", reader="")
    assert await part_quota.handle_report(first)
    assert not await part_quota.handle_report(replace(first, host="another"))


async def test_a_report_stays_with_the_broker_until_all_have_reported(tmp_path: Path) -> None:
    (tmp_path / "f.Part").write_bytes(b"x" * 10)
    early = Given(report("f.Part", reader="a"), report("other.Part"))
    await PartQuota(tmp_path, URL, 100, readers=2).consume_reports(cast(PumpSubscription, early))
    assert early.acked == [False, True]
    # After a restart it comes again, and counts.
    again = Given(report("f.Part", reader="a"), report("f.Part", reader="b"))
    part_quota = PartQuota(tmp_path, URL, 100, readers=2)
    await part_quota.consume_reports(cast(PumpSubscription, again))
    assert again.acked == [True, True]
    assert part_quota.bytes == 0


@pytest.mark.parametrize(
    "told", [report("f.Part", 503), report("f.Part", 201, "http://other/"), report("../f.Part")]
)
async def test_a_failure_or_anothers_file_changes_nothing(told: PostReport, tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100)
    await held(part_quota, tmp_path / "f.Part", 10)
    await part_quota.handle_report(told)
    assert (tmp_path / "f.Part").exists()


async def test_what_fails_to_come_gives_its_room_back(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100)
    with pytest.raises(SourceMissing):
        async with part_quota.reserve(tmp_path / "f.Part", 80):
            raise SourceMissing("gone")
    assert part_quota.bytes == 0


async def test_a_part_larger_than_all_the_room_comes_alone(tmp_path: Path) -> None:
    part_quota = PartQuota(tmp_path, URL, 100)
    async with asyncio.timeout(60):
        await held(part_quota, tmp_path / "f.Part", 1000)
    assert part_quota.bytes == 1000


async def test_what_lies_there_from_before_counts(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f.Part").write_bytes(b"x" * 70)
    part_quota = PartQuota(tmp_path, URL, 100)
    assert part_quota.bytes == 70
    await part_quota.handle_report(report("d/f.Part"))
    assert part_quota.bytes == 0
