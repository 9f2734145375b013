"""What subscribe and sarra do with posts: files, links, folders, removals, moves, and telling."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.downloader import Downloader, DownloadRules
from penstock_pump.errors import BadPost, OutsideDirectory, RemoveFailed
from penstock_pump.files import operations
from penstock_pump.files.target import LocalTarget
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.handlers import ReceiveHandler, ReceiveRules, RepublishTarget
from penstock_pump.plugins import Plugin, Plugins
from penstock_pump.post_filter import PostFilter
from penstock_pump.posts import Checksum, FileEvent, Parts, Post
from penstock_pump.posts.checksums import ChecksumMethods, directory_sum, link_sum, removal_sum
from penstock_pump.posts.parts import split_blocks
from penstock_pump.posts.reports import REJECTED
from penstock_pump.selection import Placement, PostSelection, SelectionClause
from penstock_pump.transports.transport import TransportContext, TransportRegistry
from tests.pump.servers import EVERY_FILE

LETTER = PumpMessage("v02.post", b"")


class Noted:
    """Announcements, kept; the first may be refused."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.refuse = False

    async def announce(self, post: Post) -> None:
        if self.refuse:
            self.refuse = False
            raise ConnectionError("gone")
        self.posts.append(post)


@pytest.fixture
async def transports() -> AsyncIterator[TransportRegistry]:
    opened = TransportRegistry(TransportContext(files=EVERY_FILE))
    yield opened
    await opened.close()


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def receiving(transports: TransportRegistry, here: Path, noted: Noted) -> ReceiveHandler:
    return make(transports, here, noted)


def make(
    transports: TransportRegistry,
    here: Path,
    noted: Noted,
    plugins: Plugins | None = None,
    **wanted: Any,
) -> ReceiveHandler:
    rules = Placement(str(here), mirror=True)
    selection = PostSelection(
        [SelectionClause(False, re.compile(".*secret.*"), rules)], True, rules
    )
    return ReceiveHandler(
        ReceiveRules(**{"selection": selection, **wanted}),
        Downloader(transports, ChecksumMethods(), DownloadRules()),
        republish_target=RepublishTarget(cast(PostPublisher, noted), "http://me/", here),
        plugins=plugins,
    )


def file(folder: Path, path: str, content: bytes = b"content", **facts: Any) -> Post:
    """A file there, and its post."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    return Post(
        moment=0,
        base_url=f"file:{folder}/",
        relpath=path,
        sum=Checksum("d", hashlib.md5(content).hexdigest()),
        parts=Parts.whole(len(content)),
        **facts,
    )


def event(path: str, known: Checksum, **facts: Any) -> Post:
    return Post(moment=0, base_url="file:/", relpath=path, sum=known, **facts)


async def test_our_own_copy_is_announced_with_our_own_url(
    receiving: ReceiveHandler, there: Path, here: Path, noted: Noted
) -> None:
    outcome = await receiving(file(there, "a/f", extra={"x": "kept"}, rename="b/g"), LETTER)
    assert outcome.code == 201
    (told,) = noted.posts
    assert (told.base_url, told.relpath, told.rename) == ("http://me/", "b/g", None)
    assert told.extra == {"x": "kept"}
    assert told.moment == 0


async def test_what_is_here_already_is_not_announced_again(
    receiving: ReceiveHandler, there: Path, noted: Noted
) -> None:
    post = file(there, "f")
    assert [(await receiving(post, LETTER)).code for _ in range(2)] == [201, 304]
    assert len(noted.posts) == 1


async def test_a_file_whose_announcement_failed_is_announced_at_the_next_attempt(
    receiving: ReceiveHandler, there: Path, here: Path, noted: Noted
) -> None:
    post = file(there, "f")
    noted.refuse = True
    with pytest.raises(ConnectionError):
        await receiving(post, LETTER)
    assert (here / "f").exists()
    assert noted.posts == []
    outcome = await receiving(post, replace(LETTER, redelivered=True))
    assert outcome.code == 304
    assert [told.relpath for told in noted.posts] == ["f"]


async def test_links_folders_and_removals(
    receiving: ReceiveHandler, here: Path, noted: Noted
) -> None:
    for post in (
        event("d", directory_sum("d")),
        event("d/l", link_sum("x"), link="x"),
        event("d/l", link_sum("y"), link="y"),
    ):
        assert (await receiving(post, LETTER)).code == 201
    assert (here / "d/l").readlink() == Path("y")
    assert (await receiving(event("d/l", link_sum("y"), link="y"), LETTER)).code == 304
    full = event("d", removal_sum("d", directory=True))
    with pytest.raises(RemoveFailed):
        await receiving(full, LETTER)
    assert (await receiving(event("d/l", removal_sum("l")), LETTER)).code == 201
    assert (await receiving(event("d/l", removal_sum("l")), LETTER)).code == 304
    assert (await receiving(full, LETTER)).code == 201
    assert list(here.iterdir()) == []
    assert [told.event for told in noted.posts] == [
        FileEvent.MKDIR,
        FileEvent.LINK,
        FileEvent.LINK,
        FileEvent.DELETE,
        FileEvent.RMDIR,
    ]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "a/../../.."])
async def test_links_that_would_point_out_are_not_made(
    target: str, receiving: ReceiveHandler, here: Path
) -> None:
    with pytest.raises(OutsideDirectory):
        await receiving(event("l", link_sum(target), link=target), LETTER)
    assert not (here / "l").is_symlink()


async def link(receiving: ReceiveHandler, path: str, target: str) -> int:
    return (await receiving(event(path, link_sum(target), link=target), LETTER)).code


def outward(folder: Path) -> list[str]:
    """Links below a folder that lead out of it."""
    home = folder.resolve()
    links = [path for path in folder.rglob("*") if path.is_symlink() and not is_circular(path)]
    return [str(path) for path in links if not path.resolve().is_relative_to(home)]


def is_circular(link: Path) -> bool:
    """The kernel follows it nowhere; `resolve` would answer anything."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@pytest.mark.parametrize("target", ["..", "../e", "../e/f/g", ".", "f", "../../a", "./f//g/"])
async def test_links_that_stay_inside(target: str, receiving: ReceiveHandler, here: Path) -> None:
    assert await link(receiving, "a/b/l", target) == 201
    assert outward(here) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("d", "x/y"), ("d", ".")),  # a link that is replaced
        (("other", "z"), ("x", ".")),  # a name that becomes a link
    ],
)
@pytest.mark.parametrize("target", ["d/../..", "x/y/../..", "x/../../here"])
async def test_replacing_a_link_turns_no_other_outwards(
    target: str,
    first: tuple[str, str],
    second: tuple[str, str],
    receiving: ReceiveHandler,
    here: Path,
) -> None:
    for post in (first, ("l", target), second):
        with suppress(OutsideDirectory):
            await link(receiving, *post)
    (here / "y").mkdir()
    assert outward(here) == []


async def test_a_link_is_renamed_where_it_stays_inside(
    receiving: ReceiveHandler, here: Path
) -> None:
    await link(receiving, "a/b/l", "../f")
    renamed = event("a/b/l", removal_sum("l"), newname="a/l")
    assert (await receiving(renamed, LETTER)).code == 201
    assert (here / "a/l").readlink() == Path("../f")
    renamed = event("a/l", removal_sum("l"), newname="l")
    with pytest.raises(OutsideDirectory):
        await receiving(renamed, LETTER)
    assert (here / "a/l").is_symlink()
    assert outward(here) == []


async def test_a_folder_with_links_moves_where_they_stay_inside(
    receiving: ReceiveHandler, here: Path
) -> None:
    await link(receiving, "a/b/c/l", "../../f")
    moved = event("a/b", removal_sum("b", directory=True), newname="d/e")
    assert (await receiving(moved, LETTER)).code == 201
    assert (here / "d/e/c/l").is_symlink()
    moved = event("d/e/c", removal_sum("c", directory=True), newname="c")
    with pytest.raises(OutsideDirectory):
        await receiving(moved, LETTER)
    assert (here / "d/e/c/l").is_symlink()
    assert outward(here) == []


async def test_a_link_made_while_its_folder_moves_does_not_stay(
    receiving: ReceiveHandler, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a/b").mkdir(parents=True)
    rename = os.rename

    def late(old: Path, new: Path) -> None:
        (here / "a/b/l").symlink_to("../../f")
        (here / "a/b/m").symlink_to("../f")
        rename(old, new)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(OutsideDirectory):
        await receiving(event("a/b", removal_sum("b", directory=True), newname="b"), LETTER)
    monkeypatch.undo()
    assert (here / "b/m").is_symlink()
    assert outward(here) == []


@given(st.data())
@hypothesis.settings(max_examples=200, deadline=None)
def test_whatever_links_are_made_and_moved_none_leads_out(data: st.DataObject) -> None:
    names = st.sampled_from("abc")
    paths = st.lists(names, min_size=1, max_size=3).map("/".join)
    targets = st.lists(st.sampled_from(["..", ".", "a", "b", "c", ""]), min_size=1, max_size=5)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place, "home")
        home.mkdir()
        for _ in range(data.draw(st.integers(1, 12))):
            path, other = LocalTarget(home, data.draw(paths)), LocalTarget(home, data.draw(paths))
            with suppress(OutsideDirectory, RemoveFailed, OSError):
                match data.draw(st.sampled_from(["link", "folder", "move", "remove"])):
                    case "link":
                        operations.make_link(path, "/".join(data.draw(targets)) or ".")
                    case "folder":
                        operations.make_folder(path, 0o775)
                    case "move":
                        operations.move(path, other)
                    case _:
                        operations.remove(path)
            with suppress(RuntimeError):  # links that lead to each other lead nowhere
                assert outward(home) == []


async def test_a_link_that_does_not_say_where_to(receiving: ReceiveHandler) -> None:
    with pytest.raises(BadPost):
        await receiving(event("l", link_sum("x")), LETTER)


@pytest.mark.parametrize("path", ["../f", "a/../../f", "/../f"])
async def test_nothing_is_removed_or_written_outside(
    path: str, receiving: ReceiveHandler, here: Path
) -> None:
    precious = here.parent / "f"
    precious.write_text("precious")
    for post in (event(path, removal_sum("f")), event(path, Checksum("d", "0"))):
        with pytest.raises(OutsideDirectory):
            await receiving(post, LETTER)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_both_halves_of_a_move_in_either_order(
    order: tuple[int, int], receiving: ReceiveHandler, there: Path, here: Path, noted: Noted
) -> None:
    old = file(there, "d/old")
    await receiving(old, LETTER)
    (there / "d/old").unlink()
    halves = (
        event("d/old", removal_sum("old"), newname="e/new"),
        replace(old, base_url="file:/nowhere/", relpath="e/new", oldname="d/old"),
    )
    for each in order:
        assert (await receiving(halves[each], LETTER)).code == 201
    assert (here / "e/new").read_bytes() == b"content"
    assert not (here / "d/old").exists()
    assert {told.oldname for told in noted.posts} == {None, "d/old"}


async def test_what_is_not_wanted(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    only_files = PostFilter(frozenset({FileEvent.MODIFY}))
    receiving = make(transports, here, noted, post_filter=only_files)
    rejected = await receiving(file(there, "secret"), LETTER)
    assert (rejected.code, rejected.message) == (REJECTED, "reject .*secret.*")
    removal = await receiving(event("f", removal_sum("f")), LETTER)
    assert (removal.code, removal.message) == (REJECTED, "event delete")


async def test_plugins_have_their_say(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    seen: list[str] = []

    def files(post: Post, path: Path) -> Post:
        seen.append(path.name)
        return replace(post, extra={"seen": "yes"})

    plugins = Plugins(
        [
            Plugin(on_message=lambda post: None if post.relpath == "unwanted" else post),
            Plugin(on_file=files, on_post=lambda post: replace(post, source="us")),
        ]
    )
    receiving = make(transports, here, noted, plugins)
    assert (await receiving(file(there, "unwanted"), LETTER)).code == REJECTED
    await receiving(file(there, "f"), LETTER)
    (told,) = noted.posts
    assert (seen, told.source, told.extra) == (["f"], "us", {"seen": "yes"})


async def test_plugins_are_told_a_block_from_a_file(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    seen: list[str] = []

    def part(post: Post, path: Path) -> Post:
        seen.append(f"part of {path.name}")
        return post

    def whole(post: Post, path: Path) -> Post:
        seen.append(f"all of {path.name}")
        return post

    plugins = Plugins([Plugin(on_part=part, on_file=whole)])
    receiving = make(transports, here, noted, plugins)
    post = file(there, "f", b"abcdef")
    for block in split_blocks(6, 4):
        data = b"abcdef"[block.offset : block.offset + block.length]
        known = Checksum("d", hashlib.md5(data).hexdigest())
        await receiving(replace(post, parts=block, sum=known), LETTER)
    assert seen == ["part of f", "all of f"]


async def test_files_that_are_discarded_or_deleted_at_their_source(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    receiving = make(transports, here, noted, discard=True, delete=True)
    assert (await receiving(file(there, "f"), LETTER)).code == 201
    assert list(here.iterdir()) == list(there.iterdir()) == []


async def test_a_dry_run_does_nothing(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    receiving = make(transports, here, noted, dry_run=True, delete=True)
    assert (await receiving(file(there, "f"), LETTER)).message == "dry run"
    assert list(here.iterdir()) == []
    assert noted.posts == []
    assert (there / "f").exists()


async def test_content_that_a_plugin_changed_is_reported_as_transformed(
    transports: TransportRegistry, there: Path, here: Path, noted: Noted
) -> None:
    def shorten(post: Post, path: Path) -> Post:
        path.write_bytes(b"new")
        return replace(post, sum=Checksum("d", "0"), parts=Parts.whole(3))

    plugins = Plugins([Plugin(on_file=shorten)])
    outcome = await make(transports, here, noted, plugins)(file(there, "f"), LETTER)
    assert outcome.code == 203
    assert str(noted.posts[0].parts) == "1,3,1,0,0"
