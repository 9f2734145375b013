"""Plugins written for sr3 and v2 run unchanged: a site's own, and those that sr3 ships."""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock.core.errors import ConfigurationError
from penstock_pump.callbacks.sarracenia_api import NAME, install
from penstock_pump.components import post, subscribe
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import PumpSettings, settings_of
from penstock_pump.errors import PluginRefusal, SourceUnavailable
from penstock_pump.files.target import LocalTarget
from penstock_pump.plugins import Plugins, load_plugins
from penstock_pump.posts.post import Post
from tests.integration.pump.running import running, until
from tests.integration.pump.running import settings as running_settings
from tests.integration.pump.sarracenia import PROGRAMS
from tests.peers import Penstock
from tests.pump.servers import serving

SHIPPED = sorted(PROGRAMS.parent.glob(f"lib/python3*/site-packages/{NAME}/flowcb/accept"))
POST = Post(
    moment=1_700_000_000 * 10**9, base_url="http://h/data/", relpath="20231114/SRC/a/f.txt",
    source="me",
)  # fmt: skip
TARGET = LocalTarget("/in/a", "f.txt")

SR3 = """
import sarracenia
from sarracenia.flowcb import FlowCB
from sarracenia import nowflt, timestr2flt

class Shout(FlowCB):
    def __init__(self, options):
        super().__init__(options)
        self.o.add_option('shout_suffix', 'str', '.none')
        self.o.add_option('shout_times', 'count', 2)
        self.events = []

    def on_start(self):
        self.events.append('start')

    def after_accept(self, worklist):
        new = []
        for m in worklist.incoming:
            if 'secret' in m['relPath']:
                m.setReport(304, 'secret')
                worklist.rejected.append(m)
            elif 'later' in m['relPath']:
                worklist.failed.append(m)
            else:
                assert timestr2flt(m['pubTime']) < nowflt()
                m['new_file'] = m['new_file'] + self.o.shout_suffix * self.o.shout_times
                m['flow'] = self.o.post_baseUrl
                m['_note'] = 'x'
                new.append(m)
        worklist.incoming = new

    def after_work(self, worklist):
        for m in worklist.ok:
            m['size'] = 7

    def download(self, msg):
        return 'plugin' in msg['relPath']
"""

HOOKS = """
from sarracenia.flowcb import FlowCB

class Hooks(FlowCB):
    def __init__(self, options):
        super().__init__(options)
        self.seen = []

    def after_post(self, worklist):
        self.seen += [('posted', m['relPath']) for m in worklist.ok]

    def ack(self, messagelist):
        self.seen += [('ack', m['relPath']) for m in messagelist]

    def destfn(self, msg):
        return msg['relPath'].split('/')[-1].upper()

    def metricsReport(self):
        return {'calls': len(self.seen), 'what': 'text'}

    def on_html_page(self, data):
        return {word: '-rw-r--r-- ' + word for word in data.split()}

    def on_line(self, line):
        return None if 'skip' in line else line
"""
V2_LISTING = """
def page(parent):
    parent.entries = {'a.txt': '-rw a.txt', 'b/': 'drwx b'}
    return True
def line(parent):
    return 'a.txt' not in parent.line
self.on_html_page = page
self.on_line = line
"""
V2_CLASS = """
class Renamer(object):
    def __init__(self, parent):
        parent.declare_option('renamer_word')
    def on_message(self, parent):
        parent.logger.info('hello %s' % parent.msg.new_file)
        if 'secret' in parent.msg.relpath:
            return False
        parent.msg.headers['flow'] = parent.renamer_word[0]
        parent.msg.new_file = parent.msg.new_file + '.v2'
        return True
self.plugin = 'Renamer'
"""
V2_FUNCTION = """
def shorter(parent):
    parent.msg.relpath = parent.msg.relpath.split('/')[-1]
    return True
self.on_message = shorter
"""


def settings(tmp_path: Path, text: str, **files: str) -> PumpSettings:
    folder = tmp_path / "sr3" / "subscribe"
    folder.mkdir(parents=True)
    (tmp_path / "sr3" / "plugins").mkdir()
    for name, source in files.items():
        (tmp_path / "sr3" / "plugins" / f"{name}.py").write_text(source)
    (folder / "t.conf").write_text(text)
    return read_conf(folder / "t.conf")


async def accepted(plugins: Plugins, post: Post = POST) -> tuple[Post, LocalTarget] | None:
    found = await plugins.accept(post, TARGET)
    return found[0] if found else None


async def test_a_callback_of_sr3(tmp_path: Path) -> None:
    text = "callback shout\nshout_suffix .up\npost_baseUrl http://me/\n"
    plugins = load_plugins(settings(tmp_path, text, shout=SR3))
    plugins.notify("on_start")
    found = await accepted(plugins)
    assert found is not None
    post, target = found
    assert target.full_path == "/in/a/f.txt.up.up"
    assert post.extra == {"flow": "http://me/"}
    assert (post.moment, post.relpath, post.source) == (POST.moment, POST.relpath, "me")
    assert await accepted(plugins, replace(POST, relpath="secret")) is None
    with pytest.raises(SourceUnavailable):
        await accepted(plugins, replace(POST, relpath="later"))
    done = await plugins.download(replace(POST, relpath="plugin/f"), TARGET)
    assert done is not None
    assert done.code == 201
    worked = await plugins.file(POST, "/in/a/f.txt", whole=True)
    assert worked is not None
    assert str(worked.parts) == "1,7,1,0,0"


async def test_hooks_around_posts_names_listings_and_metrics(tmp_path: Path) -> None:
    text = "directory /in\naccept .*\\.txt DESTFNSCRIPT=hooks\n"
    told = settings(tmp_path, text, hooks=HOOKS)
    plugins = load_plugins(told)
    assert told.select[0].filename == "DESTFNSCRIPT=hooks"
    assert plugins.on_posted is not None
    assert plugins.on_done is not None

    assert (await plugins.renamed("hooks", POST, TARGET)).full_path == "/in/a/F.TXT"
    await plugins.on_posted(POST)
    await plugins.on_done(POST)

    assert plugins.metrics() == {"Hooks": {"calls": 2.0}}
    listed = plugins.index_reader("x.txt skip.txt", "http://h/", UTC)
    assert [each.name for each in listed] == ["x.txt", "skip.txt"]
    assert plugins.reads_listings
    assert [each.name for each in map(plugins.listed, listed) if each] == ["x.txt"]
    with pytest.raises(ConfigurationError, match="no plugin of this name has destfn"):
        await plugins.renamed("other", POST, TARGET)


def test_hooks_of_v2_for_listings(tmp_path: Path) -> None:
    plugins = load_plugins(settings(tmp_path, "on_line lister\n", lister=V2_LISTING))
    found = plugins.index_reader("<html>", "http://h/", UTC)
    assert [(each.name, each.is_directory) for each in found] == [("a.txt", False), ("b", True)]
    assert [each.name for each in map(plugins.listed, found) if each] == ["b"]


SPLITTER = """
import sarracenia
from sarracenia.flowcb import FlowCB

class Splitter(FlowCB):
    def __init__(self, options):
        super().__init__(options)
        options.fileSizeMax = 7

    def after_accept(self, worklist):
        (m,) = worklist.incoming
        other = sarracenia.Message(m)
        other['new_file'] = 'second'
        worklist.incoming.append(other)
        raise KeyError(self.o.masks[m['_mask_index']][-1][0] + m['_matches'][1])

    def send(self, msg):
        return -1 if 'refused' in msg['relPath'] else False
"""


async def test_a_plugin_makes_two_posts_and_refuses_to_send(tmp_path: Path) -> None:
    text = "callback splitter\naccept .*/(\\w+).txt DESTFN=x for=plugin\n"
    given = settings(tmp_path, text, splitter=SPLITTER)
    plugins = load_plugins(given)
    found = await plugins.accept(POST, TARGET)
    assert [target.full_path for _, target in found] == ["/in/a/f.txt", "/in/a/second"]
    assert plugins.callbacks is not None
    assert plugins.callbacks.changed_settings(given).file_size_max == 7
    with pytest.raises(PluginRefusal):
        await plugins.send(replace(POST, relpath="refused"), TARGET)
    with pytest.raises(SourceUnavailable):
        await plugins.send(POST, TARGET)


async def test_posts_and_acknowledgements_reach_the_hooks(
    penstock: Penstock, name: str, tmp_path: Path
) -> None:
    """Of a subscriber that renames by a plugin, announces again, and whose base URL varies."""
    there, here = tmp_path / "there" / "feed", tmp_path / "here"
    there.mkdir(parents=True)
    (there / "a.txt").write_text("x")
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "hooks.py").write_text(HOOKS)
    fetches = running_settings(
        "subscribe", penstock.url, tmp_path / "s", exchange=f"x{name}", directory=str(here),
        plugins=["callback hooks"], plugin_path=[folder], filename="DESTFNSCRIPT=hooks",
        post_broker=penstock.url, post_exchange=f"y{name}", post_base_url="http://me/${BUPL}/",
        post_base_dir=here, report_back=False,
    )  # fmt: skip
    with serving(there.parent) as server:
        posts = running_settings(
            "post", penstock.url, tmp_path / "p", post_exchange=f"x{name}", path=[there],
            post_base_url=f"{server.url}feed/", post_base_dir=there,
        )  # fmt: skip
        async with connect(penstock.url) as fabric:
            async with fabric.subscribe("v02.post.#", exchange=f"y{name}") as inflow:
                async with running(subscribe, fetches) as control:
                    await post(posts)
                    body = (await inflow.receive()).body.decode()
                    await until(lambda: control.plugin_metrics() == {"Hooks": {"calls": 2.0}})
    assert body.split()[1:] == ["http://me/feed/", "A.TXT"]
    assert (here / "A.TXT").read_text() == "x"


async def test_plugins_of_v2_that_are_functions_or_classes(tmp_path: Path) -> None:
    text = "on_message renamer.py\non_message shorter\nrenamer_word seven\non_post post_log\n"
    plugins = load_plugins(settings(tmp_path, text, renamer=V2_CLASS, shorter=V2_FUNCTION))
    found = await accepted(plugins)
    assert found is not None
    post, target = found
    assert (post.relpath, post.extra) == ("f.txt", {"flow": "seven"})
    assert target.full_path == "/in/a/f.txt.v2"
    assert await accepted(plugins, replace(POST, relpath="a/secret")) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("callback nosuch\n", "is not found: add its directory to plugin_path"),
        ("on_message nosuch\n", "no file nosuch.py"),
        ("on_message empty\n", "no function for any event"),
        ("callback broken\n", "ZeroDivisionError"),
    ],
)
def test_plugins_that_cannot_be_loaded(text: str, why: str, tmp_path: Path) -> None:
    broken = SR3.replace("self.events = []", "1 / 0").replace("Shout", "Broken")
    with pytest.raises(ConfigurationError, match=why):
        load_plugins(settings(tmp_path, text, empty="x = 1", broken=broken))


def test_what_components_do_by_themselves_is_not_loaded(tmp_path: Path) -> None:
    text = "callback gather.message\ncallback post.message\ncallback log.Log\non_message None\n"
    text += "callback v2wrapper.V2Wrapper\n"
    plugins = load_plugins(settings(tmp_path, text))
    assert plugins.callbacks is None


SHIPPED_CASES: list[tuple[str, dict[str, Any], Post, str | None, dict[str, Any]]] = [
    ("accept.httptohttps", {}, POST, None, {"base_url": "https://h/data/"}),
    ("accept.renamewhatfn", {}, replace(POST, rename="x/f:y"), "/in/a/f.txt", {}),
    ("accept.printlag", {}, POST, "/in/a/f.txt", {}),
    (
        "accept.toclusters.ToClusters",
        {"msgToClusters": ["ALL"]},
        replace(POST, to_clusters="ALL"),
        None,
        {},
    ),
    ("accept.wmotypesuffix", {}, replace(POST, relpath="x/SACN43_CWAO_010000"), None, {}),
    ("filter.wmo2msc", {"filter_wmo2msc_replace_dir": ["/in,/out"]}, POST, None, {}),
    ("sample", {}, POST, "/in/a/f.txt", {}),
    ("accept.dateappend", {}, POST, None, {}),
    ("accept.hourtree", {}, POST, None, {}),
    ("accept.trim_legacy_fields", {}, POST, None, {}),
    ("accept.pathreplace", {"pathReplace": ["data,other"]}, POST, None, {}),
    ("accept.longflow", {}, POST, None, {}),
    ("accept.posthourtree", {}, POST, None, {}),
    ("accept.postoverride", {"postOverride": ["flow x"]}, POST, None, {}),
    ("accept.rename4jicc", {}, POST, None, {}),
    ("accept.sftp_absolute", {}, POST, None, {}),
    ("accept.tolocalfile", {}, POST, None, {}),
    ("filter.geometry", {}, POST, None, {}),
    ("mdelaylatest", {"mdelay": ["30"]}, POST, None, {}),
    ("nodupe.data_only", {}, POST, "/in/a/f.txt", {}),
    ("nodupe.name_only", {}, POST, "/in/a/f.txt", {}),
    ("nodupe.path_only", {}, POST, "/in/a/f.txt", {}),
    ("shiftdir2baseurl", {"shiftDir2baseUrl": ["1"]}, POST, None, {}),
    ("work.add_inline", {}, POST, "/in/a/f.txt", {}),
    ("work.age", {}, POST, "/in/a/f.txt", {}),
    ("work.delete", {}, POST, "/in/a/f.txt", {}),
]


@pytest.mark.skipif(not SHIPPED, reason="Sarracenia is not installed: scripts/peers")
@pytest.mark.parametrize(
    ("name", "options", "post", "path", "facts"), SHIPPED_CASES, ids=[c[0] for c in SHIPPED_CASES]
)
async def test_callbacks_that_sr3_ships(
    name: str, options: dict[str, Any], post: Post, path: str | None, facts: dict[str, Any]
) -> None:
    told = settings_of(
        {
            "component": "subscribe", "dialect": "sr3", "plugins": [f"callback {name}"],
            "plugin_options": options, "plugin_path": [SHIPPED[0].parents[2]],
        }
    )  # fmt: skip
    plugins = load_plugins(told)
    for event in ("on_start", "on_housekeeping", "on_stop"):
        plugins.notify(event)
    found = await accepted(plugins, post)
    if found is None:
        return  # it is meant for other files
    assert path is None or found[1].full_path == path
    for key, value in facts.items():
        assert getattr(found[0], key) == value


@pytest.mark.skipif(not SHIPPED, reason="Sarracenia is not installed: scripts/peers")
def test_plugins_may_name_modules_of_sr3_that_they_have_not_imported() -> None:
    install([SHIPPED[0].parents[2]])
    package = importlib.import_module("sarracenia")
    assert package.flowcb.accept.__name__ == "sarracenia.flowcb.accept"
    with pytest.raises(AttributeError, match="'sarracenia' has no attribute 'nosuch'"):
        _ = package.nosuch


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    told = settings(tmp_path, "callback broken\n", broken="class Broken(None.base): ...\n")
    with pytest.raises(ConfigurationError, match=r"callback 'broken': AttributeError"):
        load_plugins(told)
