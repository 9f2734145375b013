"""The pages of jobs in a browser, over jobs in memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.web.browsing import NARROW, PATIENCE, looking, serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "a-name-that-is-rather-long-for-a-narrow-screen-1"
#: Jobs that have ended before anybody looks.
ENDED = ("lake-1", "river-1", HOSTILE, LONG)
WRONG = b"CLASS;FC;GA17\nP1-HM01;1;2\nP1-X02;many;<x\nP1-X03;3;<20\n"


@pytest.fixture(scope="module")
def dashboards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("jobs")
    with serving("-m", "tests.web.jobs.memory_server", str(folder), *ENDED) as url:
        yield url


@pytest.fixture
def page(browser: Browser, dashboards: str) -> Iterator[Page]:
    with looking(browser, dashboards) as opened:
        yield opened


def start_trial(page: Page, name: str, seconds: int) -> None:
    page.goto("/jobs")
    page.get_by_role("tab", name="Trial run").click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_label("Duration in seconds").fill(str(seconds))
    panel.get_by_label("Seconds between progress reports").fill("0.2")
    panel.get_by_label("Job id").fill(name)
    panel.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/jobs/{name}")


def test_a_data_set_is_checked_at_once_by_row_and_column(page: Page) -> None:
    page.goto("/jobs")
    file = FilePayload(name="river.csv", mimeType="text/csv", buffer=WRONG)
    page.locator("input[type=file]").first.set_input_files(file)
    found = page.locator("[data-found=samples]")
    expect(found.get_by_text("2 problems")).to_be_visible()
    expect(found.get_by_role("listitem")).to_have_text(
        ["row 3 · column FC 'many' is not a number", "row 3 · column GA17 '<x' is not a number"]
    )
    expect(found.locator("td.wrong")).to_have_text(["many", "<x"])
    expect(page.get_by_role("button", name="Predict", exact=True)).to_be_disabled()


def test_models_are_built_and_samples_predicted_with_them(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("tab", name="Build").click()
    page.get_by_role("button", name="Use synthetic data").click()
    expect(page.get_by_text("103 samples")).to_be_visible()
    page.get_by_role("button", name="Build models").click()
    expect(page.get_by_text("Features of the models")).to_be_visible()
    expect(page.get_by_text("Reliability of the confidence")).to_be_visible()
    expect(page.get_by_text("of samples with an answer")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Models, zip").click()
    models = zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert "signatures.json" in models.namelist()

    page.get_by_role("link", name="Predict with these models").click()
    expect(page.get_by_text("signatures from 103 samples")).to_be_visible()
    page.get_by_role("button", name="Use synthetic samples").click()
    page.get_by_role("button", name="Predict", exact=True).click()
    expect(page.get_by_text("Confusion matrix")).to_be_visible()
    counts = page.locator(".p-confusion td").all_inner_texts()
    undecided = page.locator(".p-origin.undecided").count()
    assert sum(map(int, counts)) + undecided == 15
    expect(page.locator(".p-chart svg")).to_have_count(3)
    with page.expect_download() as download:
        page.get_by_role("link", name="Table, CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 16
    assert lines[0].endswith("origin;confidence;hours;dilution;decided by")


def test_progress_moves_and_the_end_comes_without_a_reload(page: Page) -> None:
    start_trial(page, "trial-1", 15)
    expect(page.get_by_text("left")).to_be_visible()
    expect(page.get_by_role("status").get_by_text("done")).to_be_visible()
    expect(page.get_by_text("took")).to_be_visible()


def test_a_command_is_run_and_its_output_shown(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("tab", name="Command").click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_label("Program and arguments").fill("/bin/echo 'unfinished")
    panel.get_by_role("button", name="Run").click()
    expect(page.get_by_text("No closing quotation")).to_be_visible()
    panel.get_by_label("Program and arguments").fill("/bin/echo 'a <b>'")
    panel.get_by_role("button", name="Run").click()
    expect(page.locator("[data-output]")).to_have_text("/bin/echo a <b>")


def test_a_job_is_cancelled_in_the_list_and_tried_again(page: Page) -> None:
    start_trial(page, "trial-2", 600)
    page.goto("/jobs")
    row = page.locator("[data-job=trial-2]")
    expect(row.get_by_text("running")).to_be_visible()
    page.goto("/workers")
    expect(
        page.locator("[data-worker=workshop]").get_by_role("link", name="trial-2")
    ).to_be_visible()
    page.goto("/jobs")
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_text("cancelled")).to_be_visible()
    row.get_by_role("button", name="Retry").click()
    expect(row.get_by_text("running")).to_be_visible()
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_text("cancelled")).to_be_visible()


def test_jobs_are_found_by_name(page: Page) -> None:
    page.goto("/jobs")
    expect(page.locator("[data-job=lake-1]").get_by_text("done")).to_be_visible()
    expect(page.locator("[data-job=river-1]")).to_be_visible()
    page.get_by_label("Find by id").fill("lake")
    expect(page.locator("[data-job=river-1]")).to_have_count(0)
    expect(page.locator("[data-job=lake-1]")).to_be_visible()


def test_a_name_is_text_whatever_is_in_it(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("link", name=HOSTILE).click()
    page.wait_for_url("**/jobs/*")
    expect(page.get_by_role("status").get_by_text("done")).to_be_visible()
    expect(page.locator(".p-page").get_by_text(HOSTILE)).to_be_visible()
    expect(page.locator(".p-page img")).to_have_count(0)


def test_a_job_that_is_not_there_is_said_to_be_none(page: Page) -> None:
    page.goto("/jobs/none")
    expect(page.get_by_text("there is no job 'none'")).to_be_visible()


def test_on_a_narrow_screen_nothing_runs_over_the_edge(browser: Browser, dashboards: str) -> None:
    with looking(browser, dashboards, NARROW, "dark") as page:
        page.goto(f"/jobs/{LONG}")
        expect(page.get_by_role("status").get_by_text("done")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        page.goto("/jobs")
        expect(page.locator(".p-job").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
