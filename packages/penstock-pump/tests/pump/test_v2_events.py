"""Events of v2's plugins: reports, watched trees, polls, and those that are refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.client import connect
from penstock.core.errors import ConfigurationError
from penstock_pump.components import poll
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import PumpSettings
from penstock_pump.files.target import LocalTarget
from penstock_pump.flow.publisher import PostPublisher, ReportPublisher
from penstock_pump.plugins import load_plugins
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.poster import FilePoster
from penstock_pump.poster.tree import PostedTree
from penstock_pump.poster.watcher import TreeWatcher, WatchOptions
from penstock_pump.posts import Post
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.reports import PostOutcome, PostReport
from tests.integration.pump.running import running
from tests.integration.pump.sarracenia import PROGRAMS
from tests.peers import Penstock
from tests.pump.servers import serving

SHIPPED = sorted(PROGRAMS.parent.glob("lib/python3*/site-packages/sarra/plugins/poll_noaa.py"))
POST = Post(moment=10**18, base_url="http://h/", relpath="a/f.txt", source="me")

REPORTS = """
def checked(parent):
    msg = parent.msg
    if msg.code == 304:
        return False
    if msg.code == 499:
        raise KeyError('x')
    msg.headers['message'] = '%d of %s' % (msg.code, msg.relpath)
    msg.headers['flow'] = 'seen'
    return True
self.on_report = checked
"""
GATE = """
import os
class Gate(object):
    def __init__(self, parent):
        parent.declare_option('gate_file')
    def on_watch(self, parent):
        with open(parent.gate_file[0] + '.calls', 'a') as file:
            file.write('x')
        return os.path.exists(parent.gate_file[0])
self.plugin = 'Gate'
"""
POLL = """
import time
class Stations(object):
    def __init__(self, parent):
        parent.declare_option('stations')
    def do_poll(self, parent):
        for name in parent.stations[0].split(','):
            parent.msg.new_file = name + '.csv'
            parent.msg.sumstr = 'z,d'
            parent.msg.set_parts(size=7)
            parent.to_clusters = 'ALL'
            parent.post(parent.exchange, parent.destination, parent.msg.new_file,
                        parent.to_clusters, parent.msg.partstr, parent.msg.sumstr,
                        mtime=time.strftime('%Y%m%d%H%M%S', time.gmtime()), mode=0o100640)
        raise OSError('the last station does not answer')
stations = Stations(self)
self.do_poll = stations.do_poll
"""
REGISTERED = """
class Ours(object):
    def registered_as(self):
        return ['ours', 'others']
    def do_poll(self, parent):
        parent.post(None, 'ours://h/', 'of-ours')
ours = Ours()
self.do_poll = ours.do_poll
"""
REFUSING = """
class Mine(object):
    def __init__(self, parent):
        pass
    def EVENT(self, parent, *chunk):
        return True
self.plugin = 'Mine'
"""
SLOW = """
import threading
inside = threading.Lock()
def alone(parent):
    assert inside.acquire(blocking=False), 'called concurrently'
    try:
        name = parent.msg.relpath
        threading.Event().wait(0.001)
        return parent.msg.relpath == name
    finally:
        inside.release()
self.on_message = alone
"""


def conf(tmp_path: Path, component: str, text: str, **files: str) -> PumpSettings:
    folder = tmp_path / "sarra" / component
    folder.mkdir(parents=True)
    (tmp_path / "sarra" / "plugins").mkdir()
    for name, source in files.items():
        (tmp_path / "sarra" / "plugins" / f"{name}.py").write_text(source)
    (folder / "t.conf").write_text(text)
    return read_conf(folder / "t.conf")


class Reports:
    def __init__(self) -> None:
        self.sent: list[PostReport] = []

    async def report(self, report: PostReport) -> None:
        self.sent.append(report)


async def test_on_report_changes_the_headers_of_a_report_or_drops_it(tmp_path: Path) -> None:
    plugins = load_plugins(conf(tmp_path, "sarra", "on_rpt checked\n", checked=REPORTS))
    reports = Reports()
    publisher = ReportPublisher(cast(PostPublisher, reports), "host", "user", plugins=plugins)
    for code in (201, 304, 499):
        await publisher(POST, PostOutcome(code, "text"), 0.5)
    assert [(each.code, each.message) for each in reports.sent] == [
        (201, "201 of a/f.txt"),
        (499, "text"),  # a plugin that fails changes nothing
    ]
    assert [each.post.extra for each in reports.sent] == [{"flow": "seen"}, {}]


class Announced:
    def __init__(self) -> None:
        self.posts: asyncio.Queue[Post] = asyncio.Queue()

    async def announce(self, post: Post) -> None:
        await self.posts.put(post)


async def test_on_watch_postpones_changes_until_it_returns_true(tmp_path: Path) -> None:
    gate, root = tmp_path / "gate", tmp_path / "root"
    root.mkdir()
    calls = Path(f"{gate}.calls")
    plugins = load_plugins(conf(tmp_path, "watch", f"plugin gate\ngate_file {gate}\n", gate=GATE))
    announced = Announced()
    poster = FilePoster(FileDescriber("http://h/", root), cast(PostPublisher, announced))
    tree = PostedTree(tmp_path / "tree.db")
    watcher = TreeWatcher(root, poster, tree, WatchOptions(existing=True), plugins.on_watch)
    (root / "early").write_text("x")
    stop, ready = asyncio.Event(), asyncio.Event()
    running_watch = asyncio.create_task(watcher.run(stop, ready))
    await asyncio.wait_for(ready.wait(), 60)
    asked = len(calls.read_text())
    (root / "late").write_text("x")
    async with asyncio.timeout(60):
        while len(calls.read_text()) < asked + 2:  # noqa: ASYNC110 - the plugin writes a file
            await asyncio.sleep(0.02)
    assert announced.posts.empty()
    gate.touch()
    async with asyncio.timeout(60):
        found = {(await announced.posts.get()).relpath for _ in range(2)}
    assert found == {"early", "late"}
    stop.set()
    await asyncio.wait_for(running_watch, 60)
    tree.close()


def test_without_on_watch_nothing_is_asked(tmp_path: Path) -> None:
    assert load_plugins(conf(tmp_path, "watch", "on_message None\n")).on_watch is None


def test_do_poll_posts_what_it_finds_also_before_an_error(tmp_path: Path) -> None:
    text = (
        "broker amqp://me@h/\ndestination http://h/data\ncluster here\n"
        "stations one,two\ndo_poll stations\n"
    )
    settings = conf(tmp_path, "poll", text, stations=POLL)
    plugins = load_plugins(settings)
    assert plugins.gathers
    assert not plugins.gathered(settings.poll_url or "", is_due=False)
    first, second = plugins.gathered(settings.poll_url or "", is_due=True)
    assert (first.base_url, first.relpath, second.relpath) == (
        "http://h/data",
        "one.csv",
        "two.csv",
    )
    assert (str(first.sum), first.parts, first.mode) == ("z,d", Parts.whole(7), 0o640)
    assert (first.source, first.from_cluster, first.to_clusters) == ("me", "here", "ALL")


def test_do_poll_of_the_plugin_that_is_registered_for_the_scheme(tmp_path: Path) -> None:
    text = "destination http://h/data\nstations one\ndo_poll ours\ndo_poll stations\n"
    plugins = load_plugins(conf(tmp_path, "poll", text, ours=REGISTERED, stations=POLL))
    for url, found in (("others://h/", "of-ours"), ("http://h/", "one.csv")):
        assert [each.relpath for each in plugins.gathered(url, is_due=True)] == [found]


@pytest.mark.skipif(not SHIPPED, reason="Sarracenia is not installed: scripts/peers")
def test_a_plugin_that_v2_ships_polls_stations(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "getter").write_text("level")
    stations = tmp_path / "stations"
    stations.write_text("1|2|8443970|Boston\n")
    with serving(tmp_path / "data") as server:
        text = (
            f"plugin_path {SHIPPED[0].parent}\npoll_noaa_stn_file {stations}\n"
            f"destination {server.url}getter?station={{0:}}&product={{1:}}\ndo_poll poll_noaa.py\n"
        )
        settings = conf(tmp_path, "poll", text)
        found = load_plugins(settings).gathered(settings.poll_url or "", is_due=True)
    assert [each.relpath for each in found] == [
        "CO-OPS__8443970__wt.csv",
        "CO-OPS__8443970__wl.csv",
    ]
    assert found[1].base_url == (
        f"{server.url}getter?station=8443970&product=water_level&datum=STND"
    )
    assert {(str(each.sum), each.to_clusters) for each in found} == {("z,d", "ALL")}


async def test_a_poll_publishes_what_do_poll_posts(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    text = (
        f"broker {penstock.url}\npost_broker {penstock.url}\npost_exchange x{name}\n"
        "destination http://h/data\nstations one,two\ndo_poll stations\naccept .*\n"
    )
    settings = conf(tmp_path, "poll", text, stations=POLL)
    settings = settings.model_copy(update={"state": tmp_path / "state"})
    async with connect(penstock.url) as fabric:
        async with fabric.subscribe("v02.post.#", exchange=f"x{name}") as inflow:
            async with running(poll, settings):
                async with asyncio.timeout(60):
                    bodies = [(await inflow.receive()).body.decode() for _ in range(2)]
    assert [each.split()[1:] for each in bodies] == [
        ["http://h/data", "one.csv"],
        ["http://h/data", "two.csv"],
    ]


async def test_plugins_of_v2_are_not_called_concurrently(tmp_path: Path) -> None:
    plugins = load_plugins(conf(tmp_path, "sarra", "on_message alone\n", alone=SLOW))
    posts = [replace(POST, relpath=f"a/{number}") for number in range(20)]
    target = LocalTarget("/in/a", "f.txt")
    found = await asyncio.gather(*(plugins.accept(each, target) for each in posts))
    assert [each.relpath for ((each, _),) in found] == [each.relpath for each in posts]


@pytest.mark.parametrize(
    ("event", "instead"),
    [
        ("on_data", "on_file"),
        ("do_get", "do_download"),
        ("do_put", "do_send"),
        ("do_task", "on_message"),
    ],
)
def test_events_that_are_refused_name_the_alternative(
    event: str, instead: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=f"{event}: is refused: .*{instead}"):
        conf(tmp_path / "option", "sarra", f"{event} mine\n")
    source = REFUSING.replace("EVENT", event)
    settings = conf(tmp_path, "sarra", "plugin mine\n", mine=source)
    with pytest.raises(ConfigurationError, match=f"{event} is refused: .*{instead}"):
        load_plugins(settings)
