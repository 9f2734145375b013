"""What sender does with posts of files that are here, or that are no files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from penstock_pump.errors import OutsideDirectory, SourceMissing, UnsupportedSource
from penstock_pump.flow.message import PumpMessage
from penstock_pump.handlers import ReceiveRules
from penstock_pump.posts import reports
from penstock_pump.posts.post import Post
from penstock_pump.send_handler import SendDestination, SendHandler
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
