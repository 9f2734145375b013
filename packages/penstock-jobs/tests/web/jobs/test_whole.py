"""The pages and the API over everything they are for: a broker, a database, a worker.

Work is submitted in a browser and over HTTP, done by a worker, and still there when the dashboards
have been started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock_jobs.model import SparkCall
from penstock_jobs.queue.requester import job_requester, send_request
from tests.databases import copy_of
from tests.integration.jobs.running import SAMPLES, clean
from tests.peers import Penstock
from tests.web.browsing import PATIENCE, looking, serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)
SECONDS = PATIENCE / 1000


@dataclass(frozen=True)
class Ground:
    """Where the parts are that pages and API need."""

    broker: str
    database: str
    folder: Path

    def program(self, *words: str) -> list[str]:
        """A command of ours that reaches them."""
        reaching = ["--url", self.broker, "--database", self.database]
        return ["-m", "penstock", *words, *reaching, "--stop-with-stdin"]

    def dashboards(self) -> list[str]:
        return [
            *self.program("dashboards", "--only", "jobs"),
            *("--port", "0", "--data", str(self.folder)),
        ]

    def over(self, scheme: str) -> Ground:
        return replace(self, broker=self.broker.replace("amqp", scheme, 1))


@pytest.fixture(scope="module")
def ground(
    tmp_path_factory: pytest.TempPathFactory, penstock: Penstock, embedded_template: str
) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("whole")
    with copy_of(embedded_template) as database:
        found = Ground(penstock.url, database, folder)
        allowed = ("--program", "/bin/sh", "--allow", SAMPLES)
        worker = found.program("job", "worker", "--fork", "2", "--methods", "lda", *allowed)
        with serving(*worker):
            yield found
    clean(penstock.url)


@pytest.fixture(scope="module")
def api(ground: Ground) -> Iterator[httpx.Client]:
    words = ground.program("job", "api", "--port", "0", "--data", str(ground.folder))
    with serving(*words) as url, httpx.Client(base_url=url, timeout=SECONDS) as client:
        assert client.get("/jobs").status_code == 401
        token = (ground.folder / "jobs.token").read_text()
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def new_id() -> str:
    return f"whole-{uuid.uuid4().hex[:8]}"


def told(api: httpx.Client, identity: str) -> list[dict[str, Any]]:
    """What the stream of a job says, up to its end."""
    with api.stream("GET", f"/jobs/{identity}/progress") as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_job_over_http_is_done_and_followed_to_its_end(api: httpx.Client) -> None:
    name = new_id()
    form = {"type": "fake", "id": name, "duration": "1", "interval": "0.2"}
    answer = api.post("/jobs", files={each: (None, value) for each, value in form.items()})
    assert answer.status_code == 202, answer.text
    heard = told(api, name)
    assert heard[-1]["state"] == "done"
    assert [each["revision"] for each in heard] == sorted(each["revision"] for each in heard)
    assert api.get(f"/jobs/{name}/result").json()["id"] == name
    assert api.post("/jobs", json={"type": "fake", "id": name}).status_code == 409


def test_a_job_that_runs_is_cancelled_over_http(api: httpx.Client) -> None:
    name = new_id()
    api.post("/jobs", json={"type": "fake", "id": name, "duration": 600, "interval": 0.2})
    with api.stream("GET", f"/jobs/{name}/progress") as stream:
        for line in stream.iter_lines():
            if '"running"' in line:
                break
    assert api.post(f"/jobs/{name}/cancel").status_code == 200
    assert told(api, name)[-1]["state"] == "cancelled"


def test_what_the_worker_refuses_is_told_over_http(api: httpx.Client) -> None:
    name = new_id()
    request = {"type": "build_models", "id": name, "dataset": {"CLASS": ["P1-HM01"]}}
    assert api.post("/jobs", json=request).status_code == 202
    last = told(api, name)[-1]
    assert last["state"] in ("failed", "refused")
    assert "at least 10 of each origin" in last["error"]


def start_trial(page: Page, name: str) -> None:
    """And wait for its end."""
    page.get_by_role("tab", name="Trial run").click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_label("Duration in seconds").fill("0")
    panel.get_by_label("Job id").fill(name)
    panel.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/jobs/{name}")
    expect(page.get_by_role("status").get_by_text("done")).to_be_visible()


def test_pages_have_what_was_before_they_were_served_and_what_is_asked_for_there(
    browser: Browser, ground: Ground, api: httpx.Client
) -> None:
    before, asked = new_id(), new_id()
    api.post("/jobs", json={"type": "fake", "id": before, "duration": 0})
    with serving(*ground.dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        expect(page.locator(f"[data-job={before}]").get_by_text("done")).to_be_visible()
        start_trial(page, asked)
    assert api.get(f"/jobs/{asked}").json()["state"] == "done"


@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0"])
def test_the_output_of_a_command_and_a_function_is_shown_while_they_run(
    browser: Browser, ground: Ground, tmp_path: Path, scheme: str
) -> None:
    go = tmp_path / "go"
    wait = f"echo first; until test -e {go}; do sleep 0.1; done; echo last"
    with serving(*ground.over(scheme).dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        page.get_by_role("tab", name="Command").click()
        panel = page.get_by_role("tabpanel")
        panel.get_by_label("Program and arguments").fill(f"/bin/sh -c '{wait}'")
        panel.get_by_role("button", name="Run").click()
        expect(page.locator("[data-output]")).to_have_text("first")
        expect(page.get_by_role("status").get_by_text("running")).to_be_visible()
        go.touch()
        expect(page.locator("[data-output]")).to_have_text("first\nlast")
        expect(page.get_by_role("status").get_by_text("done")).to_be_visible()

        page.goto("/jobs")
        page.get_by_role("tab", name="Function").click()
        panel = page.get_by_role("tabpanel")
        panel.get_by_label("Function", exact=True).fill(f"{SAMPLES}:say")
        panel.get_by_label("Arguments, a JSON list").fill('[1, "ü"]')
        panel.get_by_label("Keyword arguments, a JSON object").fill('{"more": null}')
        panel.get_by_role("button", name="Call").click()
        expect(page.locator("[data-output]")).to_have_text("said")
        expect(page.locator(".p-result")).to_contain_text("ü")


@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("scheme", ["amqp", "amqp+1.0"])
def test_a_function_on_spark_is_called_on_the_page(
    browser: Browser, ground: Ground, scheme: str
) -> None:
    there = ground.over(scheme)
    worker = there.program("job", "worker", "--spark", "local[1]", "--allow", SAMPLES)
    with serving(*worker), serving(*there.dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        page.get_by_role("tab", name="Spark").click()
        panel = page.get_by_role("tabpanel")
        panel.get_by_label("Function", exact=True).fill(f"{SAMPLES}:count_on_spark")
        panel.get_by_label("Arguments, a JSON list").fill("[1000]")
        panel.get_by_role("button", name="Call").click()
        expect(page.locator("[data-output]")).to_contain_text("counting 1,000 rows")
        expect(page.locator(".p-result")).to_contain_text("1000")


@pytest.mark.slow
def test_the_history_is_there_after_a_restart_of_the_dashboards(
    browser: Browser, ground: Ground
) -> None:
    name = new_id()
    with serving(*ground.dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        start_trial(page, name)
    with serving(*ground.dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        expect(page.locator(f"[data-job={name}]").get_by_text("done")).to_be_visible()
        page.get_by_role("link", name=name).click()
        expect(page.get_by_text("took")).to_be_visible()


def test_pages_with_a_gate_of_their_own_are_served_beyond_loopback(
    browser: Browser, ground: Ground
) -> None:
    """Without hives: the users are those of `penstock job user`, and what they do is logged."""
    reaching = ("--database", ground.database)
    users = ("-m", "penstock", "job", "user", "add", "ada", "--role", "submitter", *reaching)
    environment = {**os.environ, "PENSTOCK_JOBS_PASSWORD": "a long password"}
    subprocess.run([sys.executable, *users], check=True, env=environment, timeout=SECONDS)
    name = new_id()
    words = (*ground.dashboards(), "--gate", "jobs", "--host", "0.0.0.0")
    with serving(*words) as url:
        with looking(browser, url.replace("0.0.0.0", "127.0.0.1")) as page:
            page.goto("/jobs")
            page.get_by_label("Name", exact=True).fill("ada")
            page.get_by_label("Password", exact=True).fill("a long password")
            page.get_by_role("button", name="Sign in").click()
            start_trial(page, name)
            expect(page.get_by_text("submitted by ada")).to_be_visible()
    log = ("-m", "penstock", "job", "audit", "--job", name, *reaching)
    told = subprocess.run(
        [sys.executable, *log], check=True, capture_output=True, text=True, timeout=SECONDS
    )
    assert f"ada  submitted  {name}  fake" in told.stdout


def test_a_section_that_is_not_there_is_named() -> None:
    words = [sys.executable, "-m", "penstock", "dashboards", "--only", "kitchens"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "--only kitchens: no such section (installed: hives, jobs)" in done.stderr


def test_without_a_broker_the_command_says_so_in_a_line(ground: Ground) -> None:
    words = [sys.executable, *ground.dashboards()]
    words.remove("--stop-with-stdin")
    words[words.index("--url") + 1] = "amqp://127.0.0.1:1"
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 6
    assert "penstock: no broker at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_pages_stay_small_with_ten_thousand_waiting_jobs(
    browser: Browser, ground: Ground, api: httpx.Client
) -> None:
    """No worker runs Spark here, so the jobs wait."""
    count, prefix = 10_000, new_id()

    async def submit() -> None:
        requester = job_requester(ground.broker)
        await requester.open()
        names = [f"{prefix}-{number:05}" for number in range(count)]
        for at in range(0, count, 1_000):  # each waits for its confirm
            batch = names[at : at + 1_000]
            await asyncio.gather(
                *(send_request(requester, SparkCall(name, "reports:monthly")) for name in batch)
            )
        await requester.close()

    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop in this one
        thread.submit(asyncio.run, submit()).result()
    with serving(*ground.dashboards()) as url, looking(browser, url) as page:
        page.goto("/jobs")
        expect(page.locator("[data-count=waiting]")).to_have_text(f"{count:,}")
        rows = page.locator("[data-job]")
        expect(rows).to_have_count(15)
        assert page.evaluate("document.getElementsByTagName('*').length") < 2_000
        page.get_by_label("Find by id").fill(f"{prefix}-07654")
        expect(rows).to_have_count(1)
        rows.get_by_role("button", name="Cancel").click()
        page.get_by_label("Find by id").fill("")
        page.get_by_role("button", name="Older").click()
        expect(page.get_by_text("page 2 of")).to_be_visible()
        expect(rows).to_have_count(15)
