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


def paste(page: Page, label: str, text: str) -> None:
    page.get_by_label(label).evaluate(
        """(cell, text) => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            const options = {clipboardData: data, bubbles: true, cancelable: true};
            cell.dispatchEvent(new ClipboardEvent("paste", options));
        }""",
        text,
    )


def test_rows_are_typed_and_pasted_into_a_matrix_checked_by_cell_and_saved(page: Page) -> None:
    page.goto("/datasets")
    page.get_by_label("Matrix", exact=True).click()
    page.get_by_role("option", name="phages").click()
    save = page.get_by_role("button", name="Save")
    expect(save).to_be_disabled()
    # The rows of a matrix replace those shown: wait for it before rows are pasted.
    expect(page.get_by_role("columnheader", name="SOMCPH")).to_be_visible()
    expect(page.locator(".p-edit thead th")).to_have_count(5)
    paste(page, "CLASS, row 2", "P6-HM01\t2,2E+06\t9E+05\t8300\r\nP6-CW02\t1E+07\tmany\t<20\r\n")
    wrong = page.get_by_label("SOMCPH, row 3")
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("1 problem; the first: row 3, column SOMCPH")).to_be_visible()
    expect(save).to_be_disabled()
    wrong.fill("4E+06")
    expect(page.locator("[data-found=rows]").get_by_text("2 samples")).to_be_visible()
    page.get_by_label("Name of the data set").fill("ter 1")
    save.click()
    expect(page.get_by_text("name 'ter 1': must have")).to_be_visible()
    page.get_by_label("Name of the data set").fill("ter")
    save.click()
    saved = page.locator("[data-dataset=ter]")
    expect(saved.get_by_text("version 1 · 2 samples · phages")).to_be_visible()
    page.get_by_label("GA17, row 3").fill("<10")
    save.click()
    expect(saved.get_by_text("version 2")).to_be_visible()
    saved.get_by_role("link", name="v1").click()
    expect(page.get_by_label("GA17, row 3")).to_have_value("<20")
    page.get_by_role("link", name="Predict", exact=True).click()
    found = page.locator("[data-found=samples]")
    expect(found.get_by_text("2 samples, 1 human by their ids; 3 indicators")).to_be_visible()


def test_operators_add_matrices_of_their_own(page: Page) -> None:
    page.goto("/datasets")
    paste(page, "CLASS, row 2", "P6-HM01\t\t2,2E+06")
    expect(page.locator("[data-found=rows]").get_by_text("1 sample")).to_be_visible()
    page.get_by_text("New matrix").click()
    page.get_by_label("Name of the matrix").fill("ter")
    page.get_by_label("Title").fill("River Ter")
    page.get_by_label("Columns, with ; between them").fill("FC; pH")
    add = page.get_by_role("button", name="Add", exact=True)
    add.click()
    expect(page.get_by_text("needs a column CLASS")).to_be_visible()
    page.get_by_label("Columns, with ; between them").fill("CLASS; pH; FC")
    add.click()
    heads = page.locator(".p-edit thead th")
    expect(heads).to_have_text(["", "CLASS", "pH", "FC"])
    expect(page.get_by_label("FC, row 2")).to_have_value("2,2E+06")
    page.reload()
    page.get_by_label("Matrix", exact=True).click()
    expect(page.get_by_role("option", name="ter: River Ter")).to_be_visible()


def test_results_of_several_models_are_compared(page: Page) -> None:
    for name in ("models-a", "models-b"):
        page.goto("/jobs")
        page.get_by_role("tab", name="Build").click()
        page.get_by_role("button", name="Use synthetic data").click()
        page.get_by_role("tabpanel").get_by_label("Job id").fill(name)
        page.get_by_role("button", name="Build models").click()
        expect(page.get_by_text("Features of the models")).to_be_visible()
    page.goto("/jobs")
    page.get_by_label("or the models of finished jobs").click()
    for name in ("models-a", "models-b"):
        page.get_by_role("option", name=name).click()
    page.keyboard.press("Escape")
    expect(page.get_by_text("signatures from 103 samples")).to_have_count(2)
    page.get_by_role("button", name="Use synthetic samples").click()
    page.get_by_role("tabpanel").get_by_label("Job id").fill("both")
    page.get_by_role("button", name="Predict", exact=True).click()
    page.wait_for_url("**/compare*")
    expect(page.get_by_text("15 / 15", exact=True)).to_be_visible()
    expect(page.get_by_text("samples with the same answer")).to_be_visible()
    table = page.locator(".p-table")
    expect(table.locator("th")).to_have_text(["sample", "both.models-a", "both.models-b"])
    expect(table.locator("tbody tr")).to_have_count(15)
    expect(table.locator(".p-differs")).to_have_count(0)


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


def test_a_job_has_its_options_and_its_files(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("tab", name="Command").click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_label("Program and arguments").fill("/usr/bin/wc data.csv")
    file = FilePayload(name="data.csv", mimeType="text/csv", buffer=b"1;2\n")
    panel.locator("input[type=file]").set_input_files(file)
    expect(page.locator("[data-found=files]").get_by_text("4 bytes")).to_be_visible()
    panel.get_by_text("Options", exact=True).click()
    panel.get_by_label("Priority, 9 is first").fill("7")
    panel.get_by_label("Start at").fill("tomorrow")
    panel.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Start at 'tomorrow': must be a time")).to_be_visible()
    panel.get_by_label("Start at").fill("2026-01-01T06:00Z")
    panel.get_by_role("button", name="Run").click()
    expect(page.locator("[data-output]")).to_have_text("/usr/bin/wc data.csv\ndata.csv: 4 bytes")
    expect(page.locator(".p-facts").get_by_text("priority 7")).to_be_visible()


def test_a_key_is_of_one_unfinished_job(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("tab", name="Trial run").click()
    panel = page.get_by_role("tabpanel")
    panel.get_by_label("Duration in seconds").fill("600")
    panel.get_by_text("Options", exact=True).click()
    panel.get_by_label("Unique key").fill("probe")
    panel.get_by_label("Stored for days").fill("0.5")
    panel.get_by_label("Job id").fill("probe-1")
    panel.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/probe-1")
    page.goto("/jobs")
    page.get_by_role("tab", name="Trial run").click()
    panel.get_by_text("Options", exact=True).click()
    panel.get_by_label("Unique key").fill("probe")
    panel.get_by_role("button", name="Start").click()
    expect(page.get_by_text("has the unique key 'probe'")).to_be_visible()
    row = page.locator("[data-job=probe-1]")
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_text("cancelled")).to_be_visible()
    panel.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/trial-*")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status").get_by_text("cancelled")).to_be_visible()


def test_a_job_is_cancelled_in_the_list_and_tried_again(page: Page) -> None:
    start_trial(page, "trial-2", 600)
    page.goto("/jobs")
    row = page.locator("[data-job=trial-2]")
    expect(row.get_by_text("running")).to_be_visible()
    page.goto("/workers")
    running = page.locator("[data-worker=workshop]").get_by_role("link", name="trial-2")
    expect(running).to_be_visible()
    page.get_by_role("link", name="workshop").click()
    page.wait_for_url("**/workers/workshop")
    expect(running).to_be_visible()
    page.goto("/jobs/trial-2")
    expect(page.get_by_role("link", name="workshop")).to_be_visible()
    page.goto("/workers/idle")
    expect(page.locator("[data-worker=idle]").get_by_text("0 jobs")).to_be_visible()
    page.goto("/jobs")
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_text("cancelled")).to_be_visible()
    row.get_by_role("button", name="Retry").click()
    expect(row.get_by_text("running")).to_be_visible()
    row.get_by_role("button", name="Cancel").click()
    expect(row.get_by_text("cancelled")).to_be_visible()


def test_a_schedule_is_added_paused_and_removed(page: Page) -> None:
    page.goto("/schedules")
    expect(page.get_by_text("None yet.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_label("Timing").click()
    page.get_by_role("option", name="By a cron expression").click()
    page.get_by_label("Minute, hour, day, month, weekday").fill("0 2 * * *")
    page.get_by_label("Time zone").fill("Europe/Nowhere")
    save = page.get_by_role("button", name="Save")
    save.click()
    expect(page.get_by_text("time zone 'Europe/Nowhere': unknown")).to_be_visible()
    page.get_by_label("Time zone").fill("Europe/Madrid")
    page.get_by_label("Request, as JSON").fill('{"type": "fake"')
    save.click()
    expect(page.get_by_text("Request: Expecting")).to_be_visible()
    page.get_by_label("Request, as JSON").fill('{"type": "fake", "duration": 1}')
    save.click()
    row = page.locator("[data-schedule=nightly]")
    expect(row.get_by_text("0 2 * * * · Europe/Madrid")).to_be_visible()
    expect(row.get_by_text("next at")).to_be_visible()
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_text("paused")).to_be_visible()
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("next at")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("None yet.")).to_be_visible()


def test_jobs_are_found_by_name(page: Page) -> None:
    page.goto("/jobs")
    expect(page.locator("[data-job]").first).to_be_visible()
    page.get_by_label("Find by id").fill("-1")  # the list has pages
    expect(page.locator("[data-job=lake-1]").get_by_text("done")).to_be_visible()
    expect(page.locator("[data-job=river-1]")).to_be_visible()
    page.get_by_label("Find by id").fill("lake")
    expect(page.locator("[data-job=river-1]")).to_have_count(0)
    expect(page.locator("[data-job=lake-1]")).to_be_visible()


def test_a_name_is_text_whatever_is_in_it(page: Page) -> None:
    page.goto("/jobs")
    expect(page.locator("[data-job]").first).to_be_visible()
    page.get_by_label("Find by id").fill(HOSTILE)
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
        for path, text in (
            ("/datasets", "Saved data sets"),
            ("/workers", "No worker runs a job"),
            ("/compare", "Compare predictions"),
            ("/schedules", "Start jobs again and again"),
        ):
            page.goto(path)
            expect(page.get_by_text(text)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], path


def test_behind_a_gate_everybody_signs_in_and_sees_what_their_role_allows(
    browser: Browser, tmp_path: Path
) -> None:
    with serving("-m", "tests.web.jobs.memory_server", str(tmp_path), "--gate", "lake-1") as url:
        with looking(browser, url) as page:
            page.goto("/jobs")
            expect(page.get_by_text("Sign in", exact=True).first).to_be_visible()
            expect(page.locator("[data-job]")).to_have_count(0)
            sign_in(page, "ada", "wrong")
            expect(page.get_by_role("alert")).to_be_visible()
            sign_in(page, "ada", "secret")
            page.get_by_role("tab", name="Trial run").click()
            panel = page.get_by_role("tabpanel")
            panel.get_by_label("Job id").fill("hers")
            panel.get_by_label("Duration in seconds").fill("0")
            panel.get_by_role("button", name="Start").click()
            page.wait_for_url("**/jobs/hers")
            page.goto("/jobs")
            expect(page.locator("[data-job=hers]")).to_be_visible()
            expect(page.locator("[data-job=lake-1]")).to_have_count(0)
            page.goto("/jobs/lake-1")
            expect(page.get_by_text("there is no job 'lake-1'")).to_be_visible()
        with looking(browser, url) as page:
            page.goto("/jobs")
            sign_in(page, "bob", "secret")
            expect(page.locator("[data-job=lake-1]")).to_be_visible()
            expect(page.locator("[data-job=hers]")).to_be_visible()
            start_trial(page, "his", 600)
        with looking(browser, url) as page:
            page.goto("/jobs")
            sign_in(page, "eve", "secret")
            his = page.locator("[data-job=his]")
            expect(his.get_by_text("running")).to_be_visible()
            expect(his.get_by_role("button")).to_have_count(0)
            expect(page.get_by_role("tab")).to_have_count(0)
            page.goto("/jobs/his")
            expect(page.get_by_role("status").get_by_text("running")).to_be_visible()
            expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
            page.goto("/datasets")
            expect(page.get_by_label("CLASS, row 2")).to_be_visible()
            expect(page.get_by_role("button", name="Save")).to_have_count(0)
            expect(page.get_by_text("New matrix")).to_have_count(0)
            page.goto("/audit")
            expect(page.get_by_text("token created")).to_have_count(0)


def test_users_make_their_tokens_and_operators_read_the_audit_log(
    browser: Browser, tmp_path: Path
) -> None:
    with serving("-m", "tests.web.jobs.memory_server", str(tmp_path), "--gate") as url:
        with looking(browser, url) as page:
            page.goto("/tokens")
            sign_in(page, "ada", "secret")
            expect(page.get_by_text("None yet.")).to_be_visible()
            for name in ("laptop", "<b>"):
                page.get_by_label("Name of the program").fill(name)
                page.get_by_role("button", name="Create a token").click()
                expect(page.locator("[data-token]").get_by_text(name)).to_be_visible()
            expect(page.locator("[data-new-token]")).to_contain_text("secret of ")
            page.reload()
            row = page.locator("[data-token]").filter(has_text="laptop")
            expect(page.locator("[data-new-token]")).to_have_count(0)
            row.get_by_role("button", name="Revoke").click()
            expect(row).to_have_count(0)
            start_trial(page, "hers", 600)
            page.get_by_role("button", name="Cancel").click()
            expect(page.get_by_role("status").get_by_text("cancelled")).to_be_visible()
        with looking(browser, url, NARROW, "dark") as page:
            page.goto("/audit")
            sign_in(page, "bob", "secret")
            rows = page.locator(".p-table tbody tr")
            expect(rows.filter(has_text="token created").first).to_contain_text("ada")
            page.get_by_label("Id of a job").fill("hers")
            expect(rows).to_have_count(2)
            expect(rows.first).to_contain_text("cancelled")
            rows.first.get_by_role("link", name="hers").click()
            page.wait_for_url("**/jobs/hers")
            expect(page.locator(".p-facts").get_by_text("ada")).to_be_visible()
            page.goto("/jobs")
            expect(page.locator("[data-job=hers]").get_by_text("· ada")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]


def sign_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
