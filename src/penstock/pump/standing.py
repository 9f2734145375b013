"""How a component that runs stands, in a small file beside its state, for others to look at.

The file names the process and when that began, so that another process with the same number is not
taken for it. It is written whole, every few seconds, and goes when the component ends well.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.pump.components.control import Control
from penstock.pump.components.naming import state_folder
from penstock.pump.config.settings import PumpSettings

SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a component has done since it began."""

    pid: int
    begun: int  #: the process's start, in the kernel's ticks
    since: float
    ready: bool = False
    heard: int = 0
    postponed: int = 0
    last: float = 0.0
    lag: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return process_start(self.pid) == self.begun


def process_start(pid: int) -> int | None:
    """When a process began; None if there is no such process."""
    try:
        # The name, in parentheses, may contain anything: count from behind it.
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if status[0] == "Z" else int(status[19])


def standing_file(settings: PumpSettings) -> Path:
    return state_folder(settings) / f"standing_{settings.instance:02d}.json"


def read_standing(settings: PumpSettings) -> Standing | None:
    try:
        given: dict[str, Any] = json.loads(standing_file(settings).read_text())
        return Standing(**given)
    except (OSError, ValueError, TypeError):
        return None


async def keep_standing(settings: PumpSettings, control: Control) -> None:
    """Write it down every few seconds, until cancelled."""
    path = standing_file(settings)
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    begun, since = process_start(os.getpid()) or 0, time.time()
    try:
        while True:
            tally = control.tally
            standing = Standing(
                os.getpid(),
                begun,
                since,
                control.ready.is_set(),
                tally.heard,
                tally.postponed,
                tally.last,
                tally.lag,
                {str(code): count for code, count in tally.codes.items()},
                dict(tally.rejected.most_common(10)),
            )
            await asyncio.to_thread(_write, path, json.dumps(asdict(standing)))
            if control.ready.is_set():
                await asyncio.sleep(SECONDS)
            else:
                await control.ready.wait()
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
