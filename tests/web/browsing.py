"""Servers and browsers for tests of pages: a process each, and the system's Chromium.

Playwright keeps an event loop running while it is open, which tests with a loop of their own
cannot have in their thread: a browser is open for one module, whose tests have none.
"""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tests.peers import START_SECONDS, STOP_SECONDS, PeerMissing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, StorageState

#: In milliseconds, as Playwright counts: for any one thing to happen on a busy machine.
PATIENCE: Final = 180_000
#: To leave a page at the end of a test.
LEAVE_MILLISECONDS: Final = 10_000
WIDE: Final = (1280, 900)
NARROW: Final = (360, 780)


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """A Python program that prints its URL when it is ready, and stops when its input ends."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        words = process.stdout.readline().split() if said else []
        assert words, f"{arguments} did not become ready"
        yield words[-1]
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise PeerMissing("chromium is not installed: scripts/peers")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            timeout=PATIENCE,
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(
    browser: Browser,
    url: str,
    size: Sequence[int] = WIDE,
    shade: str = "light",
    known: StorageState | None = None,
    **more: Any,
) -> Iterator[Page]:
    """A page in a session of its own, or in one that is `known`: somebody signed in before. What
    it says is wrong on the console fails the test. `more` are options of Playwright's."""
    from playwright.sync_api import Error

    width, height = size
    more.setdefault("reduced_motion", "reduce")  # drawing what moves costs most of the time
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme="dark" if shade == "dark" else "light",
        accept_downloads=True,
        storage_state=known,
        **more,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(repr(error)))
    try:
        yield page
    finally:
        # The context ends with the browser: Chromium may never answer a request to close it.
        with suppress(Error):
            page.goto("about:blank", timeout=LEAVE_MILLISECONDS)
    assert not wrong, wrong


def sign_out(page: Page) -> None:
    """Leaves as a link does. Pages of an ended session reload, which would abort a `goto`."""
    page.evaluate("location.assign('/sign-out')")
