"""A folder that is carried to another, for people to look at: what `penstock pump demo` runs.

    inbox/ ──watch──> exchange `xs_demo` ──subscribe──> mirror/
                                └──────── reports ────> exchange `xreport`

Stations nobody built write a small file into the inbox every few seconds, and what is old is
removed from it: the mirror follows. Whatever else is dropped there is carried, too. What both
exchanges carry is kept in the stream `announcements`, so that files can be traced.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from penstock_pump.components import ComponentControl, subscribe, watch
from penstock_pump.components.message_archive import keep_in_stream
from penstock_pump.config.settings import Component, PumpSettings, settings_of
from penstock_pump.names import REPORTS

EXCHANGE: Final = "xs_demo"
#: Made-up stations, and how warm it is there on the whole.
STATIONS: Final = {"harbour": 14.0, "hill": 9.5, "airport": 12.0, "lake": 11.0}
#: The files of a station that are left in the inbox.
MAX_FILES: Final = 30


class PumpDemo:
    """Two folders below `home`, and what goes on between them."""

    def __init__(self, home: Path, broker: str, every: float) -> None:
        self.inbox = home / "inbox"
        self.mirror = home / "mirror"
        self._state = home / "state"
        self._broker = broker
        self._every = every

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Until it is told to stop; `ready` is called when what lands is carried."""
        for folder in (self.inbox, self.mirror):
            folder.mkdir(parents=True, exist_ok=True)
        watching, downloader = ComponentControl(stop=stop), ComponentControl(stop=stop)
        await keep_in_stream(self._settings(Component.SHOVEL), (EXCHANGE, REPORTS))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(subscribe(self._subscribe(), downloader))
                await _either(downloader.ready, stop)  # or what is announced first is not heard
                both.create_task(watch(self._watch(), watching))
                await _either(watching.ready, stop)
                if not stop.is_set():
                    ready()
                await self._observe(stop)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _observe(self, stop: asyncio.Event) -> None:
        """A file every now and then, from one station after the other."""
        random = Random()
        while True:
            for station, usual in STATIONS.items():
                if stop.is_set():
                    return
                now = datetime.now(UTC)
                await asyncio.to_thread(self._write, station, observation(now, usual, random), now)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._every)

    def _write(self, station: str, text: str, now: datetime) -> None:
        folder = self.inbox / "observations" / station
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{now:%Y%m%dT%H%M%SZ}.csv").write_text(text)
        for old in sorted(folder.glob("*T*Z.csv"))[:-MAX_FILES]:
            old.unlink(missing_ok=True)  # people may tidy up as well

    def _watch(self) -> PumpSettings:
        return self._settings(
            Component.WATCH,
            path=[self.inbox],
            post_exchange=EXCHANGE,
            post_base_url=f"file:{self.inbox}",
            post_base_dir=self.inbox,
            existing=True,
        )

    def _subscribe(self) -> PumpSettings:
        return self._settings(
            Component.SUBSCRIBE,
            exchange=EXCHANGE,
            accept_unmatched=True,
            directory=str(self.mirror),
            mirror=True,
            file_directories=[self.inbox],
            report_exchange=REPORTS,
        )

    def _settings(self, component: Component, **given: object) -> PumpSettings:
        told = {"component": component, "name": "demo", "broker": self._broker, **given}
        return settings_of({**told, "state": self._state / component})


def observation(at: datetime, usual: float, random: Random) -> str:
    """A line of weather under its heading: warmest in the afternoon, and never quite the same."""
    hour = at.hour + at.minute / 60
    warm = usual + 4 * math.sin((hour - 9) / 12 * math.pi) + random.gauss(0, 0.3)
    wind = max(0.0, random.gauss(5, 2))
    return f"time,temperature_c,wind_ms\n{at:%Y-%m-%dT%H:%M:%SZ},{warm:.1f},{wind:.1f}\n"


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
