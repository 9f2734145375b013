"""Plugins written for sr3 and v2 run unchanged: a site's own, and those that sr3 ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigurationError
from penstock_pump.callbacks.sarracenia_api import NAME
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import PumpSettings, settings_of
from penstock_pump.errors import SourceUnavailable
from penstock_pump.files.target import LocalTarget
from penstock_pump.plugins import Plugins, load_plugins
from penstock_pump.posts.post import Post
from tests.integration.pump.sarracenia import PROGRAMS

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
    return await plugins.accept(post, TARGET)


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
    text = "callback gather.message\ncallback post.message\ncallback log\non_message None\n"
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
