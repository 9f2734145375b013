"""What sender does with posts of files that are here, or that are no files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from penstock_pump.block_ledger import BlockLedger
from penstock_pump.duplicates import DuplicateFilter, FingerprintStore
from penstock_pump.errors import OutsideDirectory, SourceMissing, UnsupportedSource
from penstock_pump.flow.message import PumpMessage
from penstock_pump.handlers import ReceiveRules
from penstock_pump.posts import reports
from penstock_pump.posts.checksums import directory_sum, link_sum, removal_sum
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import Post
from penstock_pump.selection import Placement, PostSelection
from penstock_pump.send_handler import SendDestination, SendHandler
from penstock_pump.transfer import BandwidthLimit
from penstock_pump.transports.access import FileRule
from penstock_pump.transports.transport import TransportContext, TransportRegistry


async def sent(here: Path, there: Path, relpath: str) -> int:
    destination = SendDestination(f"file:{there}", here, FileRule((here,)))
    sending = SendHandler(destination, ReceiveRules(), TransportRegistry(TransportContext()))
    post = Post(moment=0, base_url="http://elsewhere/", relpath=relpath)
    async with asyncio.timeout(60):
        return (await sending(post, PumpMessage("", b""))).code


async def test_a_file_below_the_directory_is_sent(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    assert await sent(tmp_path, tmp_path / "there", "f") == reports.DONE
    assert (tmp_path / "there/f").read_text() == "content"


async def test_nothing_outside_the_directory_is_sent(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("content")
    (tmp_path / "here").mkdir()
    with pytest.raises(OutsideDirectory):
        await sent(tmp_path / "here", tmp_path / "there", "../secret")
    with pytest.raises(SourceMissing):
        await sent(tmp_path / "here", tmp_path / "there", str(tmp_path / "secret"))


@pytest.mark.parametrize("kind", ["folder", "pipe"])
async def test_what_is_no_file_is_refused_and_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "it"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    with pytest.raises(UnsupportedSource):
        await sent(tmp_path, tmp_path / "there", "it")


def handler(here: Path, there: Path, **options: Any) -> SendHandler:
    rules = ReceiveRules(
        PostSelection(placement=Placement("", mirror=True)), **options.pop("rules", {})
    )
    destination = SendDestination(f"file:{there}", here, FileRule((here,)))
    return SendHandler(destination, rules, TransportRegistry(TransportContext()), **options)


def post(relpath: str, **facts: Any) -> Post:
    return Post(**{"moment": 1, "base_url": "file:/", "relpath": relpath, **facts})


async def test_links_directories_and_removals_are_sent(tmp_path: Path) -> None:
    sending, there = handler(tmp_path, tmp_path / "there"), tmp_path / "there"
    letter = PumpMessage("", b"")
    await sending(post("d/e", sum=directory_sum("e"), mode=0o750), letter)
    assert (there / "d/e").is_dir()
    await sending(post("d/link", sum=link_sum("e"), link="e"), letter)
    assert (there / "d/link").readlink() == Path("e")
    await sending(post("d/link", sum=removal_sum("link")), letter)
    await sending(post("d/e", sum=removal_sum("e", directory=True)), letter)
    assert list((there / "d").iterdir()) == []


@pytest.mark.parametrize(("rules", "kept"), [({"delete": True}, False), ({}, True)])
async def test_a_file_is_deleted_once_it_is_sent(
    rules: dict[str, Any], kept: bool, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("content")
    await handler(tmp_path, tmp_path / "there", rules=rules)(post("f"), PumpMessage("", b""))
    assert (tmp_path / "there/f").read_text() == "content"
    assert (tmp_path / "f").exists() is kept


async def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    sending = handler(tmp_path, tmp_path / "there", rules={"dry_run": True, "delete": True})
    await sending(post("f"), PumpMessage("", b""))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


async def test_blocks_of_a_newer_version_replace_those_of_an_older(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"aaaabbbb")
    there = tmp_path / "there"
    ledger = BlockLedger(tmp_path / "blocks.db")
    letter = PumpMessage("", b"")
    old = [post("f", moment=1, parts=Parts("i", 4, 2, 0, number)) for number in (0, 1)]
    new = [post("f", moment=2, parts=Parts("i", 4, 2, 0, number)) for number in (0, 1)]
    sending = handler(tmp_path, there, ledger=ledger)
    assert (await sending(old[0], letter)).message == "Inserted"
    assert (await sending(new[1], letter)).message == "Inserted"
    assert (await sending(old[1], letter)).code == reports.NOT_MODIFIED
    again = handler(tmp_path, there, ledger=BlockLedger(tmp_path / "blocks.db"))
    assert (await again(new[0], letter)).message == "Sent"  # another instance
    assert (there / "f").read_bytes() == b"aaaabbbb"
    assert (await again(new[0], letter)).code == reports.NOT_MODIFIED


async def test_bandwidth_and_duplicates(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    fingerprints = FingerprintStore(tmp_path / "seen.db", 60.0, lambda: 0.0)
    asked: list[None] = []

    def clock() -> float:
        asked.append(None)
        return 0.0

    limit = BandwidthLimit(1e9, clock)
    sending = handler(
        tmp_path,
        tmp_path / "there",
        duplicate_filter=DuplicateFilter(fingerprints),
        bandwidth_limit=limit,
    )
    codes = [(await sending(post("f"), PumpMessage("", b""))).code for _ in range(2)]
    assert codes == [reports.DONE, reports.NOT_MODIFIED]
    assert asked
    await fingerprints.close()
