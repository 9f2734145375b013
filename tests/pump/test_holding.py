"""Room for parts: given back when those they are for have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.pump.errors import SourceMissing
from penstock.pump.holding import Holding
from penstock.pump.posts.post import Post
from penstock.pump.posts.reports import Report

URL = "http://pump/"


def report(path: str, code: int = 201, base_url: str = URL) -> Report:
    post = Post(moment=0, base_url=base_url, relpath=path)
    return Report(post, code, "", "box", "me", 0.1)


async def held(holding: Holding, path: Path, size: int) -> None:
    async with holding.room(path, size):
        path.write_bytes(b"x" * size)


async def test_a_part_waits_until_another_has_gone(tmp_path: Path) -> None:
    holding = Holding(tmp_path, URL, 100)
    await held(holding, tmp_path / "f.0.Part", 80)
    waiting = asyncio.create_task(held(holding, tmp_path / "f.1.Part", 80))
    await asyncio.sleep(0)
    assert not (tmp_path / "f.1.Part").exists()
    await holding.reported(report("f.0.Part"))
    async with asyncio.timeout(60):
        await waiting
    assert not (tmp_path / "f.0.Part").exists()
    assert holding.bytes == 80


async def test_all_its_readers_have_to_have_it(tmp_path: Path) -> None:
    holding = Holding(tmp_path, URL, 100, readers=2)
    await held(holding, tmp_path / "f.Part", 10)
    await holding.reported(report("f.Part", 304))
    assert holding.bytes == 10
    await holding.reported(report("f.Part"))
    assert holding.bytes == 0


@pytest.mark.parametrize(
    "told", [report("f.Part", 503), report("f.Part", 201, "http://other/"), report("../f.Part")]
)
async def test_a_failure_or_anothers_file_changes_nothing(told: Report, tmp_path: Path) -> None:
    holding = Holding(tmp_path, URL, 100)
    await held(holding, tmp_path / "f.Part", 10)
    await holding.reported(told)
    assert (tmp_path / "f.Part").exists()


async def test_what_fails_to_come_gives_its_room_back(tmp_path: Path) -> None:
    holding = Holding(tmp_path, URL, 100)
    with pytest.raises(SourceMissing):
        async with holding.room(tmp_path / "f.Part", 80):
            raise SourceMissing("gone")
    assert holding.bytes == 0


async def test_a_part_larger_than_all_the_room_comes_alone(tmp_path: Path) -> None:
    holding = Holding(tmp_path, URL, 100)
    async with asyncio.timeout(60):
        await held(holding, tmp_path / "f.Part", 1000)
    assert holding.bytes == 1000


async def test_what_lies_there_from_before_counts(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f.Part").write_bytes(b"x" * 70)
    holding = Holding(tmp_path, URL, 100)
    assert holding.bytes == 70
    await holding.reported(report("d/f.Part"))
    assert holding.bytes == 0
