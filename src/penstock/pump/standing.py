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

from penstock.core.data_directory import private_directory
from penstock.pump.components.control import Control
from penstock.pump.components.naming import state_folder
from penstock.pump.config.settings import PumpSettings

SECONDS: Final = 2.0
#: A transfer that has lasted so long is worth a bar, as long as there are not too many.
LONG_SECONDS: Final = 1.0
_BARS: Final = 5


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
    rate: float = 0.0  #: messages a second, lately
    bytes: int = 0
    queued: int | None = None
    transfers: list[tuple[str, int, int | None]] = field(default_factory=list)  #: name, done, of

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
    await asyncio.to_thread(private_directory, path.parent)
    begun, since = process_start(os.getpid()) or 0, time.time()
    heard, looked = 0, time.monotonic()
    try:
        while True:
            now = time.monotonic()
            rate = (control.tally.heard - heard) / max(now - looked, 1e-3)
            heard, looked = control.tally.heard, now
            standing = _standing(control, begun, since, rate)
            await asyncio.to_thread(_write, path, json.dumps(asdict(standing)))
            if control.ready.is_set():
                await asyncio.sleep(SECONDS)
            else:
                await control.ready.wait()
    finally:
        path.unlink(missing_ok=True)


def _standing(control: Control, begun: int, since: float, rate: float) -> Standing:
    tally = control.tally
    long = control.transfers.long(LONG_SECONDS)[:_BARS]
    return Standing(
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
        rate,
        tally.bytes,
        tally.queued,
        [(each.name, each.done, each.total) for each in long],
    )


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
