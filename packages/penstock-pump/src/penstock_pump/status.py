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
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.names import state_folder
from penstock_pump.transfer import TransferRegistry

WRITE_SECONDS: Final = 2.0
#: A transfer that has lasted so long is worth a bar, as long as there are not too many.
LONG_TRANSFER_SECONDS: Final = 1.0
_MAX_TRANSFERS: Final = 5


@dataclass(frozen=True, slots=True)
class ComponentStatus:
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


def status_file(settings: PumpSettings) -> Path:
    return state_folder(settings) / f"standing_{settings.instance:02d}.json"


def read_status(settings: PumpSettings) -> ComponentStatus | None:
    try:
        given: dict[str, Any] = json.loads(status_file(settings).read_text())
        return ComponentStatus(**given)
    except (OSError, ValueError, TypeError):
        return None


async def write_status_regularly(settings: PumpSettings, control: ComponentControl) -> None:
    """Write it down every few seconds, until cancelled."""
    path = status_file(settings)
    await asyncio.to_thread(private_directory, path.parent)
    begun, since = process_start(os.getpid()) or 0, time.time()
    heard, looked = 0, time.monotonic()
    try:
        while True:
            now = time.monotonic()
            rate = (control.counters.heard - heard) / max(now - looked, 1e-3)
            heard, looked = control.counters.heard, now
            current_status = _status(control, begun, since, rate)
            await asyncio.to_thread(_write, path, json.dumps(asdict(current_status)))
            if control.ready.is_set():
                await asyncio.sleep(WRITE_SECONDS)
            else:
                await control.ready.wait()
    finally:
        path.unlink(missing_ok=True)


def _status(control: ComponentControl, begun: int, since: float, rate: float) -> ComponentStatus:
    counters = control.counters
    long = control.transfers.long(LONG_TRANSFER_SECONDS)[:_MAX_TRANSFERS]
    return ComponentStatus(
        os.getpid(),
        begun,
        since,
        control.ready.is_set(),
        counters.heard,
        counters.postponed,
        counters.last,
        counters.lag,
        {str(code): count for code, count in counters.codes.items()},
        dict(counters.rejected.most_common(10)),
        rate,
        counters.bytes,
        counters.queued,
        [(each.name, each.done, each.total) for each in long],
    )


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


# How a component that runs is told to stop, and how it tells that it is ready and what it did.


@dataclass(slots=True)
class ComponentControl:
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)  #: what is announced now is heard
    counters: ConsumerCounters = field(default_factory=ConsumerCounters)
    transfers: TransferRegistry = field(default_factory=TransferRegistry)
