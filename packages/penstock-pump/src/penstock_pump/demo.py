"""The demonstration `penstock pump demo`: a folder copied to another.

    inbox/ ──watch──> exchange `xs_demo` ──subscribe──> mirror/
                                └──────── reports ────> exchange `xreport`

Simulated stations write a small file into the inbox every few seconds; old ones are removed. Any
other file in the inbox is copied too. Both exchanges are archived, so files can be traced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from penstock.core.data_directory import private_directory
from penstock_pump.components import ComponentControl, subscribe, watch
from penstock_pump.components.message_archive import archive_exchanges
from penstock_pump.config.settings import Component, PumpSettings, settings_of
from penstock_pump.names import REPORTS
from penstock_pump.status import write_status_regularly

EXCHANGE: Final = "xs_demo"
#: Where the configurations of the demonstration are.
CONFIG_FOLDER: Final = "config"
#: Simulated stations and their mean temperature.
STATIONS: Final = {"harbour": 14.0, "hill": 9.5, "airport": 12.0, "lake": 11.0}
#: Files of a station that stay in the inbox.
MAX_FILES: Final = 30


class PumpDemo:
    def __init__(self, home: Path, broker: str, every: float) -> None:
        self.inbox = home / "inbox"
        self.mirror = home / "mirror"
        self._state = home / "state"
        self._config = home / CONFIG_FOLDER
        self._broker = broker
        self._every = every

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Until `stop` is set; `ready` is called when files are copied."""
        for folder in (self.inbox, self.mirror):
            folder.mkdir(parents=True, exist_ok=True)
        watching, downloading = ComponentControl(stop=stop), ComponentControl(stop=stop)
        self._write_configurations()
        reporting = [
            asyncio.create_task(write_status_regularly(settings, control))
            for settings, control in ((self._watch(), watching), (self._subscribe(), downloading))
        ]
        await archive_exchanges(self._settings(Component.SHOVEL), (EXCHANGE, REPORTS))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(subscribe(self._subscribe(), downloading))
                await _either(downloading.ready, stop)  # so that no post is missed
                both.create_task(watch(self._watch(), watching))
                await _either(watching.ready, stop)
                if not stop.is_set():
                    ready()
                await self._observe(stop)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            for task in reporting:
                task.cancel()
            await asyncio.gather(*reporting, return_exceptions=True)

    def _write_configurations(self) -> None:
        """For `penstock pump status`, which finds the components by their configurations."""
        for component in (Component.WATCH, Component.SUBSCRIBE):
            folder = private_directory(self._config / component)
            fields = {"name": "demo", "broker": self._broker, "state": str(self._state / component)}
            if component is Component.WATCH:
                fields |= {"post_exchange": EXCHANGE, "post_base_url": f"file:{self.inbox}"}
            lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
            if component is Component.WATCH:
                lines.append(f"path = [{json.dumps(str(self.inbox))}]")
            (folder / "demo.toml").write_text("\n".join(lines) + "\n")

    async def _observe(self, stop: asyncio.Event) -> None:
        """Writes files, one station after the other."""
        random = Random()
        while True:
            for station, mean in STATIONS.items():
                if stop.is_set():
                    return
                now = datetime.now(UTC)
                await asyncio.to_thread(self._write, station, observation(now, mean, random), now)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._every)

    def _write(self, station: str, text: str, now: datetime) -> None:
        folder = self.inbox / "observations" / station
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{now:%Y%m%dT%H%M%SZ}.csv").write_text(text)
        for old in sorted(folder.glob("*T*Z.csv"))[:-MAX_FILES]:
            old.unlink(missing_ok=True)

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
        common = {"component": component, "name": "demo", "broker": self._broker}
        return settings_of({**common, **given, "state": self._state / component})


def observation(at: datetime, mean: float, random: Random) -> str:
    """A CSV header and a line of weather, warmest in the afternoon."""
    hour = at.hour + at.minute / 60
    temperature = mean + 4 * math.sin((hour - 9) / 12 * math.pi) + random.gauss(0, 0.3)
    wind = max(0.0, random.gauss(5, 2))
    return f"time,temperature_c,wind_ms\n{at:%Y-%m-%dT%H:%M:%SZ},{temperature:.1f},{wind:.1f}\n"


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
