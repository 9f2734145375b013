"""What sender does with posts of files that are here, or that are no files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from penstock.pump.errors import OutsideDirectory, SourceMissing, UnsupportedSource
from penstock.pump.flow.letter import Letter
from penstock.pump.posts import reports
from penstock.pump.posts.post import Post
from penstock.pump.receiving import Wanted
from penstock.pump.sending import Destination, Sending
from penstock.pump.transports.contract import Circumstances
from penstock.pump.transports.file_rule import FileRule
from penstock.pump.transports.opening import Transports


async def sent(here: Path, there: Path, relpath: str) -> int:
    destination = Destination(f"file:{there}", here, FileRule((here,)))
    sending = Sending(destination, Wanted(), Transports(Circumstances()))
    post = Post(moment=0, base_url="http://elsewhere/", relpath=relpath)
    async with asyncio.timeout(60):
        return (await sending(post, Letter("", b""))).code


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
