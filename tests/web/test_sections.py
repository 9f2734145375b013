"""The sections of the packages in the console: jobs, pump and pipeline, in Chromium.

A broker with their data: a scheduled job, a component that has received a file, and a flow.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, Locator, Page, expect

from penstock_jobs.model import Fake
from penstock_jobs.service import JobService
from penstock_spark.progress import FlowProgress, RunState
from penstock_store import Database
from tests.databases import copy_of
from tests.fixtures import running
from tests.peers import START_SECONDS, Penstock, Process
from tests.web.browsing import PATIENCE, looking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Setting:
    broker: Penstock
    folder: Path
    environment: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock", *words]


@pytest.fixture(scope="module")
def setting(embedded_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("sections")
    with copy_of(embedded_template) as database:
        own = {"PENSTOCK_DATABASE": database, "XDG_CONFIG_HOME": str(folder / "config")}
        with running(Penstock(folder / "broker", environment=own)) as broker:
            submit_job(broker.url, database)
            FlowProgress(broker.data / "progress", "demo").set_state(
                RunState.FAILED, time.time(), "the disk is full"
            )
            yield Setting(broker, folder, {**os.environ, **own})


def submit_job(url: str, database: str) -> None:
    async def submit() -> None:
        with Database(database) as opened:
            async with JobService(url, opened) as jobs:
                tomorrow = datetime.now(UTC) + timedelta(days=1)
                await jobs.submit(Fake("trial-1", duration=1.0), at=tomorrow)

    # The browser has the loop of this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, submit()).result()


@pytest.fixture
def page(browser: Browser, setting: Setting) -> Iterator[Page]:
    with looking(browser, setting.broker.http_url) as opened:
        opened.goto("/")
        opened.get_by_label("User").fill("guest")
        opened.get_by_label("Password").fill("guest")
        opened.get_by_role("button", name="Sign in").click()
        expect(opened.get_by_role("heading", level=1)).to_have_text("Overview")
        yield opened


def card(page: Page, title: str) -> Locator:
    return page.locator("section.card", has=page.get_by_role("heading", name=title))


def test_a_job_is_listed_cancelled_and_submitted_again(page: Page) -> None:
    page.get_by_role("link", name="Jobs", exact=True).click()
    row = page.locator("tr", has_text="trial-1")
    expect(row).to_contain_text("scheduled")
    expect(card(page, "Workers")).to_contain_text("No worker runs a job")
    row.get_by_role("button", name="Cancel").click()
    expect(row).to_contain_text("cancelled")
    row.get_by_role("button", name="Retry").click()
    expect(row).to_contain_text("waiting")
    page.reload()
    expect(card(page, "Queues").locator("tr", has_text="fake")).to_contain_text("1")
    row.get_by_role("button", name="trial-1").click()
    expect(page.get_by_role("dialog")).to_contain_text("cancelled")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Attempts", exact=True).click()
    expect(page.get_by_role("columnheader", name="Attempts")).to_have_attribute(
        "aria-sort", "ascending"
    )
    expect(row).to_contain_text("waiting")
    page.get_by_label("Filter by part of an id").fill("trial-2")
    expect(page.locator("main")).to_contain_text("Nothing matches the filter")
    page.get_by_role("link", name="cancelled").click()
    expect(page.locator("main")).to_contain_text("No jobs")


def test_components_of_the_pump_and_the_history_of_a_file(page: Page, setting: Setting) -> None:
    folder, broker = setting.folder, f"amqp://guest:guest@127.0.0.1:{setting.broker.port}/"
    conf = folder / "config" / "sr3" / "subscribe" / "weather.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        f"broker {broker}\nexchange xs_guest\ntopicPrefix v02.post\nsubtopic #\n"
        f"directory {folder}/mirror\nfile_directories {folder}\n"
    )
    page.get_by_role("link", name="Pump", exact=True).click()
    component = page.locator("tr", has_text="subscribe/weather")
    expect(component).to_contain_text("stopped")

    def run(*words: str) -> None:
        command = setting.command("pump", *words)
        subprocess.run(command, env=setting.environment, check=True, timeout=START_SECONDS)

    run("archive", "xs_guest", "--broker", broker)
    command = setting.command("pump", "--conf", str(conf))
    pump = Process(command, folder / "pump.log", setting.environment)
    try:
        pump.wait_for_line("penstock pump ready")
        expect(component).to_contain_text("running")
        (folder / "radar.h5").write_text("data")
        run("post", "--broker", broker, "--base-url", "file:", str(folder / "radar.h5"))
        expect(component).to_contain_text("201: 1")
        page.get_by_label("File").fill("radar.h5")
        page.get_by_role("button", name="Trace").click()
        expect(card(page, "History of radar.h5").locator("tbody tr").first).to_contain_text(
            "xs_guest"
        )
    finally:
        pump.end(signal.SIGTERM)
    expect(component).to_contain_text("stopped")


def test_a_flow_its_dead_letters_and_a_replay_that_fails(page: Page) -> None:
    page.get_by_role("link", name="Pipeline", exact=True).click()
    flow = card(page, "Flows").locator("tr", has_text="demo")
    expect(flow).to_contain_text("failed")
    expect(flow).to_contain_text("the disk is full")
    flow.get_by_role("button", name="0", exact=True).click()
    expect(card(page, "Dead letters")).to_contain_text("demo has no dead letters")
    flow.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    replay = card(page, "Replays").locator("tr", has_text="demo")
    expect(replay).to_contain_text("exit status")  # no package has a flow of this name
    expect(replay).to_contain_text("penstock:")
