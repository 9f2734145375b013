"""Which posts a component takes; posters that wait; addresses that move."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from penstock_pump.components.factory import post_filter
from penstock_pump.components.posters import old_enough
from penstock_pump.components.vip import has_address, while_vip
from penstock_pump.config.settings import PumpSettings, settings_of
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.tree import walk
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import InlineContent, Post
from penstock_pump.status import ComponentControl


def post(**facts: Any) -> Post:
    return Post(**{"moment": time.time_ns(), "base_url": "http://h/", "relpath": "f", **facts})


@pytest.mark.parametrize(
    ("given", "facts", "taken"),
    [
        ({}, {"to_clusters": "B"}, True),
        ({"cluster": "A"}, {"to_clusters": "B"}, False),
        ({"cluster": "A"}, {}, True),
        ({"cluster": "A", "cluster_aliases": ["B"]}, {"to_clusters": "C, B"}, True),
        ({"cluster": "A", "gateway_for": ["B"]}, {"to_clusters": "B"}, True),
        ({"cluster": "A"}, {"to_clusters": "ALL"}, True),
        ({"component": "shovel", "to_clusters": "B"}, {"to_clusters": "A"}, False),
        ({"component": "sender", "to_clusters": "B,C"}, {"to_clusters": "C"}, True),
        ({"message_age_max": 60}, {"moment": 0}, False),
        ({"max_age": 60}, {"mtime": 0}, False),
        ({"max_age": 60}, {}, True),
        ({"file_size_max": "1kB"}, {"parts": Parts.whole(1001)}, False),
        ({"inline_only": True}, {}, False),
        ({"inline_only": True}, {"content": InlineContent(b"x")}, True),
    ],
)
def test_which_posts_are_taken(given: dict[str, Any], facts: dict[str, Any], taken: bool) -> None:
    settings = settings_of({"component": "sarra", **given})
    assert (post_filter(settings).rejection(post(**facts)) is None) is taken


def test_young_files_come_last_and_when_they_are_old_enough(tmp_path: Path) -> None:
    for name in ("young", "old"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "old", (1, 1))
    started = time.time()
    paths = [tmp_path / "young", tmp_path / "old", tmp_path / "gone"]
    found = list(old_enough(iter(paths), 0.2))
    assert [path.name for path in found] == ["old", "gone", "young"]
    assert time.time() - started >= 0.1


def test_links_are_followed_where_asked_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("content")
    (tmp_path / "a" / "loop").symlink_to("..")
    (tmp_path / "b").symlink_to("a")
    found = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path, follow_links=True)]
    assert found == [".", "a", "a/f", "a/loop", "b", "b/f", "b/loop"]
    (described,) = FileDescriber("http://h/", tmp_path, follow_links=True).describe(
        tmp_path / "b" / "f"
    )
    assert (described.relpath, str(described.parts)) == ("b/f", "1,7,1,0,0")
    real = FileDescriber("http://h/", tmp_path, real_path=True).describe(tmp_path / "b" / "f")
    assert real[0].relpath == "a/f"


def test_blocks_in_random_order(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    posts = FileDescriber("http://h/", tmp_path, block_size=5, randomize=True).describe(path)
    numbers = [each.parts.number for each in posts if each.parts is not None]
    assert sorted(numbers) == list(range(20))
    assert numbers != list(range(20))


def test_addresses_of_this_machine() -> None:
    assert has_address(["192.0.2.1", "127.0.0.1"])
    assert not has_address(["192.0.2.1"])


async def test_a_component_works_only_with_the_address() -> None:
    worked = asyncio.Event()

    @while_vip
    async def component(settings: PumpSettings, control: ComponentControl, plugins: object) -> None:
        worked.set()
        await control.stop.wait()

    for address, works in (("127.0.0.1", True), ("192.0.2.1", False)):
        worked.clear()
        control = ComponentControl()
        settings = settings_of({"component": "subscribe", "vip": [address]})
        task = asyncio.ensure_future(component(settings, control))
        if works:
            await asyncio.wait_for(worked.wait(), 10)
        else:
            await asyncio.wait_for(control.ready.wait(), 10)
        control.stop.set()
        await asyncio.wait_for(task, 10)
        assert worked.is_set() is works
