"""The console of a cluster of three brokers in Chromium, opened at one that follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, expect

from tests.fixtures import needed, running
from tests.peers import Etcd, Penstock, free_port
from tests.web.browsing import NARROW, PATIENCE, looking
from tests.web.contrast import faint
from tests.web.test_console_pages import card, go, press, sign_in, submit

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Penstock]]:
    """The first one leads."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        etcd = stack.enter_context(running(needed(Etcd, folder / "etcd")))
        cluster = ("--cluster", f"etcd://127.0.0.1:{etcd.port}/console")
        found = []
        for name in ("one", "two", "three"):
            own = (f"listen=penstock://127.0.0.1:{free_port()}", f"node={name}")
            settings = [word for each in own for word in ("--set", f"broker.cluster.{each}")]
            member = Penstock(folder / name, *cluster, *settings)
            found.append(stack.enter_context(running(member)))
        yield found


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_members_are_shown_and_fit_a_phone(
    browser: Browser, members: list[Penstock], shade: str
) -> None:
    with looking(browser, members[1].http_url, NARROW, shade) as page:
        sign_in(page)
        go(page, "cluster", "Cluster")
        rows = card(page, "Members").locator("tbody tr")
        expect(rows.filter(has_text="in sync")).to_have_count(3)
        expect(card(page, "Status")).to_contain_text(re.compile("Leaderone-"))
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        assert faint(page) == []


@pytest.mark.slow
def test_one_member_leaves_and_another_leads(browser: Browser, members: list[Penstock]) -> None:
    with looking(browser, members[1].http_url) as page:
        sign_in(page)
        go(page, "cluster", "Cluster")
        rows = card(page, "Members").locator("tbody tr")
        expect(rows).to_have_count(3)
        members[2].stop()  # it leaves the in-sync set, and the list
        expect(rows).to_have_count(2)

        press(page, "Resign leadership")
        submit(page, "Resign")
        expect(card(page, "Status")).to_contain_text(re.compile("Leadertwo-"))
        expect(rows.filter(has_text="one-")).to_contain_text("in sync")
        expect(page.locator("header .live")).to_have_text("live")
