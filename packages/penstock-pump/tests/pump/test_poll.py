"""Servers that are listed: indexes, schedules, and what is announced."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from penstock_pump.components.poll import poll_paths
from penstock_pump.config.settings import settings_of
from penstock_pump.duplicates import FingerprintStore
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.poller import Poller, PollRules, PollSchedule
from penstock_pump.poster.poster import FilePoster
from penstock_pump.posts.post import Post
from penstock_pump.transports.listing import ListedFile, read_index
from penstock_pump.transports.transport import TransportContext, TransportRegistry
from tests.pump.servers import LOOPBACK, serving

APACHE = """<table><tr><th><a href="?C=N;O=D">Name</a></th></tr>
<tr><td><a href="/data/">Parent Directory</a></td></tr>
<tr><td><a href="radar/">radar/</a></td><td align="right">2024-03-01 12:34  </td><td>  - </td></tr>
<tr><td><a href="a%20b.txt">a b.txt</a></td><td align="right">2024-03-01 12:34  </td><td>1.2K</td></tr>
</table>"""  # noqa: E501
NGINX = """<pre><a href="../">../</a>
<a href="f.grib">f.grib</a>        01-Mar-2024 12:34       4711
<a href="http://elsewhere/x">x</a> 01-Mar-2024 12:34  1
</pre>"""
AT = int(datetime(2024, 3, 1, 12, 34, tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (APACHE, [ListedFile("radar", True, None, AT), ListedFile("a b.txt", False, None, AT)]),
        (NGINX, [ListedFile("f.grib", False, 4711, AT)]),
        ('<li><a href="x.txt">x.txt</a></li>', [ListedFile("x.txt")]),
        ("nothing", []),
    ],
    ids=["apache", "nginx", "python", "none"],
)
def test_indexes(page: str, found: list[ListedFile]) -> None:
    assert read_index(page, "http://h/data/in/") == found


class Noted:
    def __init__(self) -> None:
        self.posts: list[Post] = []

    async def announce(self, post: Post) -> None:
        self.posts.append(post)


async def test_new_and_changed_files_are_announced_once(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "20240301").mkdir(parents=True)
    (there / "20240301" / "a b").write_bytes(b"one")
    noted = Noted()
    poster = FilePoster(FileDescriber("http://x/", there), cast(PostPublisher, noted))
    transports = TransportRegistry(TransportContext(hosts=LOOPBACK, timeout=5.0))
    seen = FingerprintStore(tmp_path / "seen.db", 3600.0, time.time)
    with serving(there) as server:
        rules = PollRules(server.url, "http://public/", ["${DAY}"], source="me")
        poller = Poller(
            rules, transports, poster, seen, lambda text: text.replace("${DAY}", "20240301")
        )
        assert [await poller.poll() for _ in range(2)] == [1, 0]
        os.utime(there / "20240301" / "a b", (1_000_000, 1_000_000))
        assert await poller.poll() == 1
        await seen.close()
        again = FingerprintStore(tmp_path / "seen.db", 3600.0, time.time)
        assert await Poller(rules, transports, poster, again, poller._expand).poll() == 0
        missing = Poller(PollRules(server.url + "no", "x:"), transports, poster, again)
        assert await missing.poll() == 0
        await again.close()
    await transports.close()
    first = noted.posts[0]
    assert (first.base_url, first.relpath) == ("http://public/", "20240301/a b")
    assert (str(first.sum), str(first.parts), first.source) == ("z,s", "1,3,1,0,0", "me")


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        (PollSchedule(60.0), 60.0),
        (PollSchedule(hours=[13]), 26 * 60.0),
        (PollSchedule(minutes=[35, 5]), 60.0),
        (PollSchedule(hours=[12], minutes=[0]), 23 * 3600 + 26 * 60.0),
        (PollSchedule(times=[(12, 40), (12, 36)]), 120.0),
    ],
)
def test_schedules(schedule: PollSchedule, seconds: float) -> None:
    assert schedule.seconds_until_next(AT / 1e9) == seconds


def test_directories_of_v2_and_paths_of_sr3() -> None:
    v2 = {
        "component": "poll",
        "select": [{"accept": ".*", "directory": d} for d in ("a", "b", "a")],
    }
    assert poll_paths(settings_of(v2)) == ["a", "b"]
    assert poll_paths(settings_of({"component": "poll", "path": ["c"]})) == ["c"]
    assert poll_paths(settings_of({"component": "poll"})) == [""]
