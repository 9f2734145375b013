"""`python -m benchmarks.hives.first_view URL`: the first view of a public page on a slow phone.

Chromium with a cold cache, a processor four times slower, and 1.6 Mbit/s with a round trip of
150 ms: the mobile profile of Lighthouse. Each round says when the first paint was, when places were
in the page, when its modules had taken over, and what was transferred; the last line has medians.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks.harness.page import put_chapter

CPU_SLOWDOWN: Final = 4
ROUND_TRIP_MS: Final = 150
BYTES_PER_SECOND: Final = 1_600_000 / 8
#: In milliseconds, after the navigation began.
_MARKS: Final = """() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
  largest: window.largest ?? NaN,
  ready: window.ready ?? NaN,
})"""
#: The largest paint is that of the list; the modules are ready when hearts can be pressed.
_OBSERVE: Final = """
  new PerformanceObserver((list) => { window.largest = list.getEntries().at(-1).startTime; })
    .observe({ type: "largest-contentful-paint", buffered: true });
  const timer = setInterval(() => {
    if (!document.querySelector(".place .heart")) return;
    window.ready = performance.now();
    clearInterval(timer);
  }, 10);
"""


_CHAPTER: Final = """# First view of the hives page

`python -m benchmarks.hives.first_view URL`: Chromium with a cold cache as a slow phone, with a
processor four times slower, 1.6 Mbit/s and a round trip of 150 ms. The list is there with the
largest paint. The page is ready when its modules have taken over. Medians of {rounds} rounds; the
load average of the machine was {load:.1f}.

| | figure | bar |
| --- | ---: | ---: |
| first paint, ms | {paint:.0f} | |
| list of places, ms | {largest:.0f} | 1,000 |
| ready, ms | {ready:.0f} | |
| transferred, kB | {kilobytes:.1f} | 100 |
| requests | {requests:.0f} | |
"""


@dataclass(frozen=True, slots=True)
class FirstViewTimes:
    paint: float  #: ms
    largest: float  #: ms
    ready: float  #: ms
    kilobytes: float
    requests: int

    def __str__(self) -> str:
        return (
            f"first paint {self.paint:.0f} ms, list {self.largest:.0f} ms, "
            f"ready {self.ready:.0f} ms, {self.kilobytes:.1f} kB in {self.requests} requests"
        )


def measure(browser: Any, url: str) -> FirstViewTimes:
    context = browser.new_context(
        viewport={"width": 360, "height": 780}, service_workers="block", is_mobile=True
    )
    page = context.new_page()
    session = context.new_cdp_session(page)
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    network = {"offline": False, "latency": ROUND_TRIP_MS}
    speed = {"downloadThroughput": BYTES_PER_SECOND, "uploadThroughput": BYTES_PER_SECOND}
    session.send("Network.emulateNetworkConditions", {**network, **speed})
    session.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWDOWN})
    page.add_init_script(_OBSERVE)
    page.goto(url, timeout=60_000)
    page.locator(".place .heart").first.wait_for(timeout=60_000)
    page.wait_for_timeout(500)  # the largest paint is told a moment later
    marks = page.evaluate(_MARKS)
    context.close()
    return FirstViewTimes(**marks, kilobytes=sum(sizes) / 1000, requests=len(sizes))


def main(
    url: Annotated[str, typer.Argument(help="Of the public page.")],
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    markdown: Annotated[Path | None, typer.Option(help="A page to write to.")] = None,
) -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: scripts/peers")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        found = [measure(browser, url) for _ in range(rounds)]
        browser.close()
    for each in found:
        print(each)
    columns = zip(*(astuple(each) for each in found), strict=True)
    middle = FirstViewTimes(*(median(column) for column in columns))
    load = os.getloadavg()[0]
    print(f"median: {middle}; load average {load:.1f}")
    if markdown is not None:
        chapter = _CHAPTER.format(rounds=rounds, load=load, **asdict(middle))
        put_chapter(markdown, chapter)


if __name__ == "__main__":
    typer.run(main)
