"""A watched tree: every change is announced once it is settled, and nothing is announced wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from penstock_pump.errors import BadPost, FileChanging
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.poster import description as describing
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.poster import FilePoster
from penstock_pump.poster.tree import PostedTree, walk
from penstock_pump.poster.watcher import TreeWatcher, WatchOptions, is_being_written
from penstock_pump.posts import Checksum, FileEvent, Parts, Post


class Noted:
    """Announcements, kept; one may be waited for."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self._more = asyncio.Event()

    async def announce(self, post: Post) -> None:
        self.posts.append(post)
        self._more.set()

    async def until(self, count: int) -> list[Post]:
        async with asyncio.timeout(60):
            while len(self.posts) < count:
                self._more.clear()
                await self._more.wait()
        return self.posts


def description(root: Path, **options: Any) -> FileDescriber:
    return FileDescriber("http://h/", root, **options)


@asynccontextmanager
async def watched(
    root: Path, tree: PostedTree, watch_options: WatchOptions | None = None, **options: Any
) -> AsyncIterator[Noted]:
    noted = Noted()
    poster = FilePoster(description(root, **options), cast(PostPublisher, noted))
    watching = TreeWatcher(root, poster, tree, watch_options or WatchOptions())
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(watching.run(stop, ready))
    await asyncio.wait_for(ready.wait(), 60)
    try:
        yield noted
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> PostedTree:
    return PostedTree(tmp_path / "tree.db")


def said(posts: list[Post]) -> list[tuple[str, str]]:
    return [(post.event.value, post.relpath) for post in posts]


def sum_of(data: bytes) -> Checksum:
    return Checksum("s", hashlib.sha512(data).hexdigest())


async def test_a_new_file_a_change_and_a_removal(root: Path, tree: PostedTree) -> None:
    async with watched(root, tree) as noted:
        (root / "f").write_bytes(b"one")
        (first,) = await noted.until(1)
        (root / "f").write_bytes(b"other")
        await noted.until(2)
        (root / "f").unlink()
        _, second, third = await noted.until(3)
    assert (first.sum, first.parts) == (sum_of(b"one"), Parts.whole(3))
    assert (second.sum, second.parts) == (sum_of(b"other"), Parts.whole(5))
    assert (third.event, third.relpath) == (FileEvent.DELETE, "f")


async def test_a_file_that_is_being_written_is_announced_when_it_is_closed_and_once(
    root: Path, tree: PostedTree
) -> None:
    async with watched(root, tree) as noted:
        with (root / "growing").open("wb") as file:
            for _ in range(5):
                file.write(b"more")
                file.flush()
                (root / "other").write_bytes(os.urandom(8))  # something else is settled meanwhile
                await noted.until(len(noted.posts) + 1)
            assert "growing" not in [post.relpath for post in noted.posts]
            before = len(noted.posts)
        posts = await noted.until(before + 1)
    announced = [post for post in posts if post.relpath == "growing"]
    assert [post.sum for post in announced] == [sum_of(b"more" * 5)]


async def test_a_folder_that_comes_with_all_that_is_in_it(
    root: Path, tree: PostedTree, tmp_path: Path
) -> None:
    (tmp_path / "new/deep").mkdir(parents=True)
    (tmp_path / "new/deep/a").write_text("a")
    (tmp_path / "new/b").write_text("b")
    async with watched(root, tree) as noted:
        (tmp_path / "new").rename(root / "new")
        posts = await noted.until(2)
    assert sorted(said(posts)) == [("modify", "new/b"), ("modify", "new/deep/a")]


async def test_a_move_is_told_in_two_halves(root: Path, tree: PostedTree) -> None:
    async with watched(root, tree) as noted:
        (root / "old").write_text("same")
        await noted.until(1)
        (root / "old").rename(root / "new")
        _, removal, renamed = await noted.until(3)
    assert (removal.event, removal.relpath, removal.newname) == (FileEvent.DELETE, "old", "new")
    assert (renamed.relpath, renamed.oldname) == ("new", "old")
    assert renamed.sum == sum_of(b"same")


async def test_a_folder_that_moves_takes_its_files_with_it(root: Path, tree: PostedTree) -> None:
    async with watched(root, tree, folders=True) as noted:
        (root / "d").mkdir()
        (root / "d/f").write_text("f")
        await noted.until(2)
        (root / "d").rename(root / "e")
        posts = await noted.until(6)
    assert said(posts[2:]) == [
        ("mkdir", "e"),
        ("delete", "d/f"),
        ("modify", "e/f"),
        ("rmdir", "d"),
    ]


async def test_links_are_announced_with_what_they_point_to(root: Path, tree: PostedTree) -> None:
    async with watched(root, tree) as noted:
        (root / "l").symlink_to("somewhere")
        (post,) = await noted.until(1)
    assert (post.event, post.link) == (FileEvent.LINK, "somewhere")


async def test_what_was_there_at_the_first_start_is_not_news(root: Path, tree: PostedTree) -> None:
    (root / "old").write_text("old")
    async with watched(root, tree) as noted:
        (root / "new").write_text("new")
        posts = await noted.until(1)
    assert said(posts) == [("modify", "new")]


async def test_what_changed_while_nobody_watched_is_announced_at_the_next_start(
    root: Path, tree: PostedTree
) -> None:
    for name in ("stays", "goes", "changes"):
        (root / name).write_text(name)
    async with watched(root, tree, WatchOptions(existing=True)) as noted:
        await noted.until(3)
    (root / "goes").unlink()
    (root / "changes").write_text("changed")
    (root / "comes").write_text("comes")
    async with watched(root, tree) as noted:
        posts = await noted.until(3)
    assert sorted(said(posts)) == [("delete", "goes"), ("modify", "changes"), ("modify", "comes")]


async def test_a_look_at_the_whole_tree_finds_what_no_event_told(
    root: Path, tree: PostedTree
) -> None:
    noted = Noted()
    poster = FilePoster(description(root), cast(PostPublisher, noted))
    watching = TreeWatcher(root, poster, tree, WatchOptions())
    ack_batcher = asyncio.create_task(watching._settle())
    (root / "missed").write_text("missed")
    await watching.rescan()
    assert said(await noted.until(1)) == [("modify", "missed")]
    await watching.rescan()
    assert len(noted.posts) == 1
    ack_batcher.cancel()


async def test_a_file_rests_for_as_long_as_asked(root: Path, tree: PostedTree) -> None:
    async with watched(root, tree, WatchOptions(min_age=1.0)) as noted:
        (root / "f").write_text("f")
        (post,) = await noted.until(1)
    assert post.mtime is not None
    assert post.moment - post.mtime >= 0.9e9


def test_whether_somebody_writes_to_a_file(root: Path) -> None:
    path = root / "f"
    with path.open("wb"):
        assert is_being_written(path) in (True, None)
    assert is_being_written(path) in (False, None)


def test_a_file_that_changes_while_it_is_read_is_not_described(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "f"
    path.write_bytes(b"x" * 10)
    monkeypatch.setattr(describing, "CHUNK", 5)
    read = os.read

    def reading(fd: int, size: int) -> bytes:
        data = read(fd, size)
        with path.open("ab") as file:
            file.write(b"more")
        return data

    monkeypatch.setattr(os, "read", reading)
    with pytest.raises(FileChanging):
        description(root).describe(path)


def test_blocks_each_have_their_sum(root: Path) -> None:
    data = bytes(range(100))
    (root / "f").write_bytes(data)
    posts = description(root, block_size=30).describe(root / "f")
    assert [str(post.parts) for post in posts] == [f"i,30,4,10,{number}" for number in range(4)]
    assert [post.sum for post in posts] == [sum_of(data[at : at + 30]) for at in range(0, 100, 30)]


@pytest.mark.parametrize("name", [b"\xff", b"a\nb"])
def test_names_that_cannot_be_announced_are_refused(root: Path, name: bytes) -> None:
    path = root / os.fsdecode(name)
    path.write_text("x")
    with pytest.raises(BadPost):
        description(root).describe(path)


async def test_what_cannot_be_announced_does_not_stop_the_watch(
    root: Path, tree: PostedTree
) -> None:
    async with watched(root, tree) as noted:
        (root / "a\nb").write_text("x")
        (root / "good").write_text("x")
        posts = await noted.until(1)
    assert said(posts) == [("modify", "good")]


@pytest.mark.parametrize("base", ["root", "root/", "./root"])
def test_the_base_directory_itself_is_not_announced(base: str, root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"content")
    described = description(root.parent / base, folders=True)
    told = [post for path in walk(root) for post in described.describe(path)]
    assert said(told) == [("mkdir", "d"), ("modify", "d/f")]


async def test_a_base_directory_that_goes_and_comes_back_is_not_announced(
    root: Path, tree: PostedTree
) -> None:
    poster = FilePoster(description(root, folders=True), cast(PostPublisher, noted := Noted()))
    watching = TreeWatcher(root, poster, tree, WatchOptions())
    (root / "d").mkdir()
    await watching.check([root])
    (root / "d").rmdir()
    root.rmdir()
    await watching.check([root])
    root.mkdir()
    await watching.check([root])
    assert said(noted.posts) == [("mkdir", "d"), ("rmdir", "d")]


def test_a_tree_in_order_and_links_not_followed(root: Path) -> None:
    (root / "b/c").mkdir(parents=True)
    (root / "b/c/f").write_text("f")
    (root / "a").symlink_to("b")
    found = [path.relative_to(root).as_posix() for path in walk(root)]
    assert found == [".", "a", "b", "b/c", "b/c/f"]
    assert len(list(walk(root, recursive=False))) == 3
