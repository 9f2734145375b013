"""`python -m benchmarks.jobs.page`: the job page in Chromium with few and with many queued jobs.

A broker, the dashboards with an embedded database, and a browser run on this machine. Jobs wait,
because no worker runs them. Times are from the click, or the address, to what it shows: a search
includes the 300 ms that the page waits for more letters. At the end a worker runs all jobs, and the
page is opened again and again meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from benchmarks.errors import PeerFailed
from benchmarks.peers import AMQP_STARTERS
from penstock_jobs.model import FunctionCall
from penstock_jobs.queue.requester import job_requester, send_request

if TYPE_CHECKING:
    from playwright.sync_api import Page

_FUNCTION: Final = "time:monotonic"
_FEW: Final = 20
_BATCH: Final = 1_000
_START_SECONDS: Final = 120.0


@contextmanager
def running(*words: str) -> Iterator[str]:
    """A command of ours, which stops when its input ends; the last word of its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words, "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line:
            raise PeerFailed(f"penstock {words[0]} did not start")
        yield line.split()[-1]
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


async def submit(url: str, first: int, last: int) -> None:
    requester = job_requester(url)
    await requester.open()
    for at in range(first, last, _BATCH):
        requests = [
            FunctionCall(f"job-{number:06}", _FUNCTION)
            for number in range(at, min(at + _BATCH, last))
        ]
        await asyncio.gather(*(send_request(requester, request) for request in requests))
    await requester.close()


def timed(action: Callable[[], None], shown: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    shown()
    return 1e3 * (time.perf_counter() - start)


def open_page(page: Page) -> None:
    page.goto("/jobs")


def measure(page: Page, jobs: int, rounds: int) -> dict[str, float]:
    """Medians, in milliseconds."""
    rows = page.locator("[data-job]")
    search = page.get_by_label("Find by id")

    def rows_shown() -> None:
        rows.nth(14).wait_for()

    found: dict[str, list[float]] = {"open": [], "older": [], "find": [], "state": []}
    for number in range(rounds):
        found["open"].append(timed(lambda: open_page(page), rows_shown))
        older = page.get_by_role("button", name="Older")
        found["older"].append(timed(older.click, page.get_by_text("page 2 of").wait_for))
        name = f"job-{number * 7 % jobs:06}"
        only = page.locator(f"[data-job={name}]")
        found["find"].append(timed(lambda: search.fill(name), only.wait_for))  # noqa: B023
        search.fill("")
        rows_shown()
        page.get_by_label("State").click()
        done = page.get_by_role("option", name="done")
        found["state"].append(timed(done.click, page.get_by_text("No matching jobs").wait_for))
    return {name: median(values) for name, values in found.items()}


def main(
    jobs: Annotated[int, typer.Option(min=_FEW)] = 10_000,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    from playwright.sync_api import expect, sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: scripts/peers")
    with TemporaryDirectory(prefix="penstock-bench-") as name, ThreadPoolExecutor(1) as thread:
        folder = Path(name)
        (folder / "broker").mkdir()
        with closing(AMQP_STARTERS["penstock"](folder / "broker")) as broker:
            url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
            dashboards = ("dashboards", "--only", "jobs", "--port", "0", "--url", url)
            with (
                running(*dashboards, "--data", str(folder / "data")) as address,
                sync_playwright() as playwright,
            ):
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                page = browser.new_page(base_url=address)
                waiting = page.locator("[data-count=waiting]")
                print(f"{'jobs':>8} {'open':>8} {'older':>8} {'find':>8} {'state':>8}   ms, median")
                for first, last in ((0, _FEW), (_FEW, jobs)):
                    thread.submit(asyncio.run, submit(url, first, last)).result()
                    page.goto("/jobs")
                    expect(waiting).to_have_text(f"{last:,}", timeout=600_000)
                    times = measure(page, last, rounds)
                    print(f"{last:8,}" + "".join(f" {each:8.0f}" for each in times.values()))
                drain(page, url, jobs)
                browser.close()
    print(f"load average {os.getloadavg()[0]:.1f}")


def drain(page: Page, url: str, jobs: int) -> None:
    """A worker runs all jobs; the page is opened meanwhile, as often as there is time."""
    page.goto("/jobs")
    done, rows = page.locator("[data-count=done]"), page.locator("[data-job]")
    times: list[float] = []
    with running("job", "worker", "--url", url, "--fork", "1", "--allow", _FUNCTION):
        start = time.perf_counter()
        while page.goto("/jobs") and done.inner_text() != f"{jobs:,}":
            times.append(timed(lambda: open_page(page), rows.nth(14).wait_for))
        seconds = time.perf_counter() - start
    if times:
        print(
            f"while {jobs:,} jobs run and are recorded, in {seconds:.1f} s: opened {len(times)} "
            f"times, median {median(times):.0f} ms, longest {max(times):.0f} ms"
        )


if __name__ == "__main__":
    typer.run(main)
