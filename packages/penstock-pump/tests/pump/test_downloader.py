"""From a post to a file: what comes is verified, and only what is right gets its name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_pump.downloader import Downloader, DownloadRules
from penstock_pump.errors import (
    BadPost,
    ForbiddenHost,
    OutsideDirectory,
    PumpError,
    SourceMissing,
    SourceUnavailable,
    SumMismatch,
    UnsupportedSource,
    WrongSize,
    unusable_name,
)
from penstock_pump.files.blocks import BlockAssembly, BlockWriter
from penstock_pump.files.inflight import FileAttributes, InflightFile
from penstock_pump.files.target import LocalTarget, read_inflight
from penstock_pump.posts import Checksum, Parts, Post
from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.posts.parts import PARTITIONED, split_blocks
from penstock_pump.posts.post import InlineContent
from penstock_pump.thread_pool import run_to_completion
from penstock_pump.transfer import BandwidthLimit
from penstock_pump.transports.transport import TransportContext, TransportRegistry
from tests.pump.servers import EVERY_FILE, LOOPBACK, FileServer, serving

DATA = os.urandom(100_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "f").write_bytes(DATA)
    with serving(folder) as running:
        yield running


@pytest.fixture
async def transports() -> AsyncIterator[TransportRegistry]:
    opened = TransportRegistry(TransportContext(hosts=LOOPBACK, timeout=5.0, files=EVERY_FILE))
    yield opened
    await opened.close()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def downloader(transports: TransportRegistry, **rules: Any) -> Downloader:
    return Downloader(transports, ChecksumMethods(), DownloadRules(**rules))


def sum_of(data: bytes) -> Checksum:
    return Checksum("s", hashlib.sha512(data).hexdigest())


def announced(url: str, data: bytes = DATA, **facts: Any) -> Post:
    return Post(
        moment=10**18,
        base_url=url,
        relpath="f",
        **{"sum": sum_of(data), "parts": Parts.whole(len(data)), **facts},
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("scheme", ["http", "file"])
async def test_a_file_arrives_whole_with_its_mode_and_times(
    scheme: str, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    url = server.url if scheme == "http" else f"file:{server.folder}/"
    post = announced(url, mode=0o640, mtime=10**18 + 5, atime=10**18)
    outcome = await downloader(transports).fetch(post, LocalTarget(here, "a/f"))
    status = (here / "a/f").stat()
    assert (here / "a/f").read_bytes() == DATA
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o640, 10**18 + 5)
    assert (outcome.code, outcome.post) == (201, post)
    assert names(here) == ["a", "f"]


async def test_what_is_here_already_is_not_fetched(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f").write_bytes(DATA)
    outcome = await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    assert outcome.code == 304
    assert server.asked == []


async def test_an_older_announcement_does_not_undo_a_newer_file(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f").write_bytes(b"newer")
    post = announced(server.url, mtime=10**17)
    assert (await downloader(transports).fetch(post, LocalTarget(here, "f"))).code == 304
    assert (here / "f").read_bytes() == b"newer"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("other", SumMismatch),
        ("more", WrongSize),
        ("less", WrongSize),
        ("die", SourceUnavailable),
        ("404", SourceMissing),
        ("500", SourceUnavailable),
        ("403", SourceUnavailable),
    ],
)
@pytest.mark.parametrize("size", [1000, len(DATA)], ids=["small", "large"])
async def test_what_is_not_as_announced_never_gets_the_name_and_the_next_attempt_may_succeed(
    fault: str,
    error: type[PumpError],
    size: int,
    server: FileServer,
    transports: TransportRegistry,
    here: Path,
) -> None:
    (here / "f").write_bytes(b"what was there before")
    (server.folder / "f").write_bytes(DATA[:size])
    server.faults = [fault]
    post = announced(server.url, DATA[:size])
    with pytest.raises(error):
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == b"what was there before"
    half = fault == "less" and size == len(DATA)  # which is gone on with
    assert names(here) == (["f", "f.tmp"] if half else ["f"])
    await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA[:size]
    assert names(here) == ["f"]


async def test_a_server_that_stalls_is_not_waited_for_for_ever(
    server: FileServer, here: Path
) -> None:
    server.faults = ["stall"]
    transports = TransportRegistry(TransportContext(hosts=LOOPBACK, timeout=0.3))
    with pytest.raises(SourceUnavailable, match="timeout"):
        await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    await transports.close()
    assert not (here / "f").exists()


async def test_half_a_file_is_gone_on_with(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f.tmp").write_bytes(DATA[:70_000])
    await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    assert server.asked == [("/f", "bytes=70000-")]
    assert (here / "f").read_bytes() == DATA


async def test_nothing_stays_of_what_will_not_be_tried_again(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    server.faults = ["less"]
    rules, post = downloader(transports), announced(server.url)
    with pytest.raises(WrongSize):
        await rules.fetch(post, LocalTarget(here, "f"))
    assert names(here) == ["f.tmp"]
    rules.abandon(post, LocalTarget(here, "f"))
    assert names(here) == []
    rules.abandon(post, LocalTarget(here, "f"))
    rules.abandon(post, LocalTarget(here, "g/f"))
    assert names(here) == []


async def test_what_another_process_is_at_stays(transports: TransportRegistry, here: Path) -> None:
    draft = InflightFile(str(here / "f.tmp"), None, None)
    draft.open()
    downloader(transports).abandon(announced("http://h/"), LocalTarget(here, "f"))
    assert names(here) == ["f.tmp"]
    draft.close()


@pytest.mark.parametrize("inplace", [True, False])
async def test_nothing_stays_of_blocks_of_which_one_will_not_be_tried_again(
    inplace: bool, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    rules = downloader(transports, inplace=inplace)
    first, second, *_ = blocks(server.url)
    await rules.fetch(first, LocalTarget(here, "f"))
    kept = [] if inplace else names(here)
    server.faults = ["other"]
    with pytest.raises(SumMismatch):
        await rules.fetch(second, LocalTarget(here, "f"))
    rules.abandon(second, LocalTarget(here, "f"))
    assert names(here) == kept


async def test_blocks_of_a_newer_version_stay_when_an_older_one_is_given_up(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    rules = downloader(transports)
    old, new = blocks(server.url), blocks(server.url, moment=10**18 + 1)
    await rules.fetch(new[0], LocalTarget(here, "f"))
    rules.abandon(old[1], LocalTarget(here, "f"))
    for post in new[1:]:
        await rules.fetch(post, LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA


@pytest.mark.parametrize("inflight", [".tmp", ".", "tmp/"])
@pytest.mark.parametrize("size", [1000, len(DATA)], ids=["small", "large"])
async def test_a_name_may_be_as_long_as_the_file_system_has_it(
    size: int, inflight: str, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (server.folder / "f").write_bytes(DATA[:size])
    rules = downloader(transports, inflight=read_inflight(inflight))
    await rules.fetch(announced(server.url, DATA[:size]), LocalTarget(here, "é" * 127 + "x"))
    assert (here / ("é" * 127 + "x")).read_bytes() == DATA[:size]
    for post in blocks(server.url, DATA[:size], size // 2):
        await rules.fetch(post, LocalTarget(here, "b" * 255))
    assert (here / ("b" * 255)).read_bytes() == DATA[:size]
    assert [name for name in names(here) if name != "tmp"] == ["b" * 255, "é" * 127 + "x"]


@pytest.mark.parametrize("path", ["x" * 256, "d" * 256 + "/f", "/".join(["deep"] * 1000)])
@pytest.mark.parametrize("size", [1000, len(DATA)], ids=["small", "large"])
async def test_a_longer_one_is_refused_before_anybody_is_asked(
    size: int, path: str, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    posts = [announced(server.url, DATA[:size]), *blocks(server.url, DATA[:size], size // 2)]
    for post in posts:
        with pytest.raises(OSError) as caught:
            await downloader(transports).fetch(post, LocalTarget(here, path))
        assert unusable_name(caught.value)
    assert server.asked == []


class Measured(BandwidthLimit):
    """Lets all through at once, and counts it."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.passed = 0

    def seconds(self, size: int) -> float:
        self.passed += size
        return 0.0


@pytest.mark.parametrize("size", [1000, len(DATA)], ids=["small", "large"])
@pytest.mark.parametrize("scheme", ["http", "file"])
async def test_every_byte_is_held_to_the_bandwidth(
    scheme: str, size: int, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (server.folder / "f").write_bytes(DATA[:size])
    url = server.url if scheme == "http" else f"file:{server.folder}/"
    bandwidth_limit = Measured()
    downloader = Downloader(transports, ChecksumMethods(), DownloadRules(), bandwidth_limit)
    await downloader.fetch(announced(url, DATA[:size]), LocalTarget(here, "f"))
    for block in split_blocks(size, size // 2):
        part = DATA[block.offset : block.offset + block.length]
        post = announced(url, part, parts=block)
        await downloader.fetch(post, LocalTarget(here, "blocks"))
    await downloader.close()
    assert (here / "blocks").read_bytes() == DATA[:size]
    assert bandwidth_limit.passed == 2 * size


def test_a_pace_lets_so_many_bytes_through_in_a_second() -> None:
    moments = iter([100.0, 100.0, 100.4, 109.0])
    bandwidth_limit = BandwidthLimit(1000.0, lambda: next(moments))
    waits = [round(bandwidth_limit.seconds(500), 6) for _ in range(4)]
    assert waits == [0.5, 1.0, 1.1, 0.5]


async def test_half_of_a_small_file_is_begun_again(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (server.folder / "f").write_bytes(DATA[:1000])
    (here / "f.tmp").write_bytes(b"x" * 700)
    await downloader(transports).fetch(announced(server.url, DATA[:1000]), LocalTarget(here, "f"))
    assert server.asked == [("/f", None)]
    assert (here / "f").read_bytes() == DATA[:1000]


async def test_half_of_another_file_is_found_out_and_begun_again(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f.tmp").write_bytes(b"x" * 70_000)
    with pytest.raises(SumMismatch):
        await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA


async def test_half_a_file_that_nothing_would_verify_is_begun_again(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f.tmp").write_bytes(b"x" * 70_000)
    await downloader(transports).fetch(
        announced(server.url, sum=Checksum("0", "1")), LocalTarget(here, "f")
    )
    assert (here / "f").read_bytes() == DATA


async def test_a_server_without_ranges(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    server.ranges = False
    (here / "f.tmp").write_bytes(DATA[:70_000])
    await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA


async def test_another_sum_is_announced_where_one_would_rather_have_the_file(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    post = announced(server.url, sum=Checksum("s", "00"))
    outcome = await downloader(transports, strict=False).fetch(post, LocalTarget(here, "f"))
    assert outcome.code == 205
    assert outcome.post is not None
    assert outcome.post.sum == sum_of(DATA)


async def test_a_sum_left_to_us_is_computed(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    post = announced(server.url, sum=Checksum("z", "s"))
    outcome = await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert outcome.code == 201
    assert outcome.post is not None
    assert outcome.post.sum == sum_of(DATA)


async def test_a_file_that_came_with_its_post(transports: TransportRegistry, here: Path) -> None:
    post = announced("http://nowhere.invalid/", b"small", content=InlineContent(b"small"))
    await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == b"small"


async def test_an_empty_file(server: FileServer, transports: TransportRegistry, here: Path) -> None:
    (server.folder / "f").write_bytes(b"")
    await downloader(transports).fetch(announced(server.url, b""), LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == b""


@pytest.mark.parametrize("inflight", [".", "tmp/", ".part", "NONE"])
async def test_names_in_flight(
    inflight: str, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    rules = downloader(transports, inflight=read_inflight(inflight))
    server.faults = ["die"]
    with pytest.raises(SourceUnavailable):
        await rules.fetch(announced(server.url), LocalTarget(here, "f"))
    assert not (here / "f").exists()
    await rules.fetch(announced(server.url), LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA


@pytest.mark.parametrize("size", [1000, len(DATA)], ids=["small", "large"])
async def test_no_symbolic_link_leads_out_and_nobody_is_asked(
    size: int, server: FileServer, transports: TransportRegistry, here: Path, tmp_path: Path
) -> None:
    (here / "out").symlink_to(tmp_path)
    post = announced(server.url, DATA[:size])
    with pytest.raises(OutsideDirectory):
        await downloader(transports).fetch(post, LocalTarget(here, "out/f"))
    assert not (tmp_path / "f").exists()
    assert server.asked == []


async def test_hosts_that_are_not_public_where_they_are_not_allowed(
    server: FileServer, here: Path
) -> None:
    transports = TransportRegistry(TransportContext())
    with pytest.raises(ForbiddenHost):
        await downloader(transports).fetch(announced(server.url), LocalTarget(here, "f"))
    await transports.close()
    assert server.asked == []


async def test_a_scheme_nobody_knows(transports: TransportRegistry, here: Path) -> None:
    with pytest.raises(UnsupportedSource):
        await downloader(transports).fetch(announced("gopher://h/"), LocalTarget(here, "f"))


def blocks(url: str, data: bytes = DATA, size: int = 30_000, moment: int = 10**18) -> list[Post]:
    return [
        replace(
            announced(url, data[parts.offset : parts.offset + parts.length]),
            parts=parts,
            moment=moment,
        )
        for parts in split_blocks(len(data), size)
    ]


@pytest.mark.parametrize("scheme", ["http", "file"])
async def test_blocks_in_any_order_make_the_file(
    scheme: str, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    url = server.url if scheme == "http" else f"file:{server.folder}/"
    first, second, third, fourth = blocks(url)
    for post in (third, first, fourth):
        outcome = await downloader(transports).fetch(post, LocalTarget(here, "f"))
        assert (outcome.code, outcome.whole) == (201, False)
        assert not (here / "f").exists()
    outcome = await downloader(transports).fetch(second, LocalTarget(here, "f"))
    assert outcome.whole
    assert (here / "f").read_bytes() == DATA
    assert names(here) == ["f"]


async def test_blocks_at_the_same_time(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    rules = downloader(transports)
    await asyncio.gather(
        *(rules.fetch(post, LocalTarget(here, "f")) for post in blocks(server.url, size=9_999))
    )
    assert (here / "f").read_bytes() == DATA
    assert names(here) == ["f"]


async def test_a_block_twice_is_fetched_once(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    first, *others = blocks(server.url)
    for post in (first, first, *others, first):
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert [asked for _, asked in server.asked].count("bytes=0-29999") == 1
    assert (here / "f").read_bytes() == DATA


async def test_a_wrong_block_is_not_counted(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    posts = blocks(server.url)
    for post in posts[:-1]:
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    server.faults = ["other"]
    with pytest.raises(SumMismatch):
        await downloader(transports).fetch(posts[-1], LocalTarget(here, "f"))
    assert not (here / "f").exists()
    await downloader(transports).fetch(posts[-1], LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == DATA


async def test_a_growing_file_is_never_a_mixture_of_its_versions(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    old = blocks(server.url)
    await downloader(transports).fetch(old[0], LocalTarget(here, "f"))
    grown = bytes(reversed(DATA)) + b"grown"
    (server.folder / "f").write_bytes(grown)
    new = blocks(server.url, grown, moment=10**18 + 1)
    for post in (new[1], new[0], new[3]):
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    outcome = await downloader(transports).fetch(old[2], LocalTarget(here, "f"))
    assert outcome.code == 304
    await downloader(transports).fetch(new[2], LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == grown


async def test_a_block_of_an_older_version_that_arrives_late_spoils_nothing(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    old, new = blocks(server.url)[0], blocks(server.url, bytes(reversed(DATA)), moment=10**18 + 1)
    assert old.parts is not None
    path = here / "f.tmp"
    fd = BlockAssembly(path, old.parts, old.moment).open()
    assert fd is not None
    late = BlockWriter(fd, old.parts, None)
    (server.folder / "f").write_bytes(bytes(reversed(DATA)))
    await downloader(transports).fetch(new[0], LocalTarget(here, "f"))
    late.write(DATA[:30_000])
    late.close()
    assert not BlockAssembly(path, old.parts, old.moment).add(
        here / "f", FileAttributes(), None, None, None
    )
    for post in new[1:]:
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert (here / "f").read_bytes() == bytes(reversed(DATA))


async def test_a_block_fetched_twice_at_the_same_time_leaves_nothing_behind(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    *others, last = blocks(server.url)
    for post in others:
        await downloader(transports).fetch(post, LocalTarget(here, "f"))
    assert last.parts is not None
    twin = BlockAssembly(here / "f.tmp", last.parts, last.moment)
    fd = twin.open()
    assert fd is not None
    await downloader(transports).fetch(last, LocalTarget(here, "f"))
    os.close(fd)
    with pytest.raises(SourceUnavailable):
        twin.add(here / "f", FileAttributes(), None, None, None)
    assert (await downloader(transports).fetch(last, LocalTarget(here, "f"))).code == 304
    assert names(here) == ["f"]


async def test_a_block_of_an_older_version_does_not_begin_a_finished_file_again(
    server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    (here / "f").write_bytes(b"newer")
    old = replace(blocks(server.url)[0], mtime=10**17)
    assert (await downloader(transports).fetch(old, LocalTarget(here, "f"))).code == 304
    assert names(here) == ["f"]


async def test_parts_are_kept_as_files_where_the_whole_has_no_room_and_put_together_elsewhere(
    server: FileServer, transports: TransportRegistry, here: Path, tmp_path: Path
) -> None:
    for post in blocks(server.url):
        kept = await downloader(transports, inplace=False).fetch(post, LocalTarget(here, "f"))
        assert kept.code == 307
        assert kept.post is not None
        assert kept.path is not None
        part = Path(kept.path)
        assert kept.post.parts is not None
        assert kept.post.parts.method == PARTITIONED
        assert part.name.endswith(".Part")
        told = replace(kept.post, base_url=f"file:{here}/", relpath=part.name)
        await downloader(transports).fetch(told, LocalTarget(tmp_path / "next", part.name))
        part.unlink()
    assert (tmp_path / "next/f").read_bytes() == DATA
    assert names(tmp_path / "next") == ["f"]


@pytest.mark.parametrize("lie", [Parts("i", 1 << 40, 1 << 20), Parts("i", 1, 1 << 40)], ids=str)
async def test_parts_of_a_file_no_disk_could_hold(
    lie: Parts, server: FileServer, transports: TransportRegistry, here: Path
) -> None:
    with pytest.raises(BadPost):
        await downloader(transports).fetch(announced(server.url, parts=lie), LocalTarget(here, "f"))
    assert not (here / "f").exists()
    assert server.asked == []


async def test_whoever_is_cancelled_waits_for_what_is_being_written(tmp_path: Path) -> None:
    began, may_end = threading.Event(), threading.Event()

    def write() -> None:
        began.set()
        may_end.wait(30)
        (tmp_path / "f").write_text("whole")

    writing = asyncio.create_task(run_to_completion(write))
    await asyncio.to_thread(began.wait, 30)
    writing.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert (tmp_path / "f").read_text() == "whole"
