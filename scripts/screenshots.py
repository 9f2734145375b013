"""Pictures of the pages for the documentation, taken of the real thing.

    python scripts/screenshots.py            all of them, into docs/images
    python scripts/screenshots.py jobs       those of one section

Each section has a function that starts what its pages need (in a directory of its own, on ports
that the system gives), brings them to where there is something to see, and takes the pictures.
Needs the system's Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
WIDE: Final = (1280, 860)
NARROW: Final = (360, 780)
#: In milliseconds.
PATIENCE: Final = 180_000
#: Charts grow for a moment before they are what they are.
_SETTLE: Final = 900


@contextmanager
def running(*words: str) -> Iterator[str]:
    """A command of ours, until the block ends; the last word of its first line, an address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"penstock {words[0]} did not start")
        yield line.split()[-1]
    finally:
        process.stdin.close()
        process.wait(60)


@contextmanager
def page_of(
    browser: Browser, url: str, size: tuple[int, int] = WIDE, dark: bool = False
) -> Iterator[Page]:
    width, height = size
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
    )
    context.set_default_timeout(PATIENCE)
    try:
        yield context.new_page()
    finally:
        context.close()


def picture(page: Page, name: str, whole: bool = False) -> None:
    if whole:  # as high as it is: what is fixed to the window reaches down to the end
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({**_size(page), "height": height})
    page.wait_for_timeout(_SETTLE)
    IMAGES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=IMAGES / f"{name}.png")


def _size(page: Page) -> ViewportSize:
    assert page.viewport_size is not None
    return page.viewport_size


def jobs(browser: Browser) -> None:
    """A build, a prediction and jobs that are under way; a data set with mistakes."""
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        Path(data).chmod(0o755)  # the embedded database may run as another user
        database = stack.enter_context(running("store", "--data", data))
        words = ("broker", "--data", data, "--listen", "amqp://127.0.0.1:0")
        broker = stack.enter_context(running(*words))
        reaching = ("--url", broker, "--database", database)
        worker = ("job", "worker", *reaching, "--fork", "2", "--grace", "1s")
        stack.enter_context(running(*worker, "--methods", "lda,bayes,logistic,knn-3"))
        shown = ("dashboards", *reaching, "--only", "jobs", "--port", "0", "--data", data)
        url = stack.enter_context(running(*shown))
        prediction = _worked(browser, url)
        with page_of(browser, url) as page:
            _mistaken(page)
            picture(page, "jobs-check", whole=True)
            page.goto("/jobs")
            page.locator(".p-job").first.wait_for()
            picture(page, "jobs", whole=True)
        for dark, size in ((False, WIDE), (True, NARROW)):
            with page_of(browser, url, size, dark) as page:
                page.goto(prediction)
                page.get_by_text("Confusion matrix").wait_for()
                picture(page, f"jobs-result-{'dark' if dark else 'light'}", whole=not dark)


def _worked(browser: Browser, url: str) -> str:
    """The address of a prediction that has been made; others are under way."""
    with page_of(browser, url) as page:
        page.goto("/jobs")
        page.get_by_role("tab", name="Build").click()
        page.get_by_role("button", name="Use synthetic data").click()
        page.get_by_role("tabpanel").get_by_label("Job id").fill("reference-2026")
        page.get_by_role("button", name="Build models").click()
        page.get_by_text("Features of the models").wait_for()
        picture(page, "jobs-models", whole=True)
        page.get_by_role("link", name="Predict with these models").click()
        page.get_by_text("signatures from").wait_for()
        page.get_by_role("button", name="Use synthetic samples").click()
        page.get_by_role("tabpanel").get_by_label("Job id").fill("river-may")
        page.get_by_role("button", name="Predict", exact=True).click()
        page.get_by_text("Confusion matrix").wait_for()
        found = page.url
        for name, seconds in (("trial-long", 120), ("trial-short", 40), ("trial-last", 90)):
            page.goto("/jobs")
            page.get_by_role("tab", name="Trial run").click()
            panel = page.get_by_role("tabpanel")
            panel.get_by_label("Duration in seconds").fill(str(seconds))
            panel.get_by_label("Job id").fill(name)
            panel.get_by_role("button", name="Start").click()
            page.wait_for_url(f"**/{name}")
    return found


def _mistaken(page: Page) -> None:
    rows = "CLASS;FC;FE;GA17\nP6-A1;2,1E+05;3,4E+04;<20\nP6-A2;many;1,2E+04;310\nP6-A3;9E+04;;-4\n"
    page.goto("/jobs")
    file = page.locator("input[type=file]").first
    file.set_input_files({"name": "river.csv", "mimeType": "text/csv", "buffer": rows.encode()})
    page.get_by_text(" problems").wait_for()


def hives(browser: Browser) -> None:
    """The public page and the business's, over places with a past that tests have as well."""
    root = IMAGES.parent.parent
    sys.path[:0] = [str(root), str(root / "packages" / "penstock-hives")]
    from tests.web.hives.business import ADA, PASSWORD, furnish_business

    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        Path(data).chmod(0o755)
        database = stack.enter_context(running("store", "--data", data))
        furnish_business(database, Path(data), 50, zone=_afternoon())
        words = ("broker", "--data", data, "--listen", "amqp://127.0.0.1:0")
        broker = stack.enter_context(running(*words))
        reaching = ("--url", broker, "--database", database, "--data", data, "--port", "0")
        site = stack.enter_context(running("hives", "serve", *reaching, "--workers", "1"))
        shown = ("dashboards", *reaching, "--only", "hives", "--gate", "hives")
        business = stack.enter_context(running(*shown))
        for dark, size in ((False, WIDE), (True, NARROW)):
            shade = "dark" if dark else "light"
            with page_of(browser, site, size, dark) as page:
                page.goto("/")
                page.locator(".place").first.wait_for()
                picture(page, f"hives-{shade}")
                page.goto("/#/hive/1")
                page.locator("svg.chart").wait_for()
                picture(page, f"hives-place-{shade}")
            with page_of(browser, business, size, dark) as page:
                page.goto("/hives")
                page.get_by_label("Name").fill(ADA)
                page.get_by_label("Password").fill(PASSWORD)
                page.get_by_role("button", name="Sign in").click()
                page.get_by_text("people inside now").wait_for()
                picture(page, f"hives-business-{shade}", whole=not dark)
                page.goto("/hives/place/1")
                page.locator("[data-chart=days] svg").first.wait_for()
                picture(page, f"hives-business-place-{shade}", whole=not dark)


def _afternoon() -> str:
    """A zone in which it is between one and two: by night there would be little to see."""
    ahead = (13 - datetime.now(UTC).hour + 11) % 24 - 11
    return f"Etc/GMT{-ahead:+d}"  # there, what lies east is less


#: Section → what takes its pictures.
SECTIONS: Final[dict[str, Callable[[Browser], None]]] = {"hives": hives, "jobs": jobs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    chosen = parser.parse_args().sections or list(SECTIONS)
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: scripts/peers")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name in chosen:
            SECTIONS[name](browser)
        browser.close()


if __name__ == "__main__":
    main()
