"""A site's own code: found by the name it is registered under, and asked what it has a word on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.core.errors import ConfigurationError
from penstock_pump.config.settings import PumpSettings, settings_of
from penstock_pump.flow.publisher import PostPublisher, ReportPublisher
from penstock_pump.plugins import Plugin, Plugins, load_plugins
from penstock_pump.posts import Post
from penstock_pump.posts.reports import PostOutcome, PostReport

POST = Post(moment=10**18, base_url="http://h/", relpath="a/B")
SITE = """
from dataclasses import replace
from penstock_pump.plugins import Plugin
lowercase = Plugin(on_message=lambda post: replace(post, rename=post.relpath.lower()))
number = 7
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_site_of_a_test.py").write_text(SITE)
    monkeypatch.syspath_prepend(tmp_path)
    return "a_site_of_a_test"


def named(plugin: str) -> PumpSettings:
    return settings_of({"component": "subscribe", "plugins": [plugin]})


def test_a_plugin_is_found_by_its_name(site: str) -> None:
    (told,) = load_plugins(named(f"{site}:lowercase")).message(POST)
    assert told is not None
    assert told.rename == "a/b"


@pytest.mark.parametrize("name", ["nobody.has:this", "{site}:nothing", "{site}:number", "{site}"])
def test_what_is_no_plugin_is_named_before_anything_is_begun(name: str, site: str) -> None:
    with pytest.raises(ConfigurationError, match="plugin"):
        load_plugins(named(name.format(site=site)))


class Told:
    def __init__(self) -> None:
        self.reports: list[PostReport] = []

    async def report(self, report: PostReport) -> None:
        self.reports.append(report)


async def test_a_report_is_changed_or_not_sent() -> None:
    def brief(report: PostReport) -> PostReport | None:
        return None if report.code == 304 else replace(report, message="ours")

    told = Told()
    plugins = Plugins([Plugin(on_report=brief)])
    reporting = ReportPublisher(cast(PostPublisher, told), "host", "user", plugins=plugins)
    await reporting(POST, PostOutcome(201, "Downloaded"), 0.5)
    await reporting(POST, PostOutcome(304, "the same file exists"), 0.5)
    assert [(each.code, each.message) for each in told.reports] == [(201, "ours")]
