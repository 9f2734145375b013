"""The status file of a running component, and the control of a component by its caller.

The file has the process id and its start time, so that another process with the same id is not
taken for it. It is replaced every few seconds, and removed when the component ends normally.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.core.data_directory import private_directory
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.names import state_folder
from penstock_pump.transfer import TransferRegistry

WRITE_SECONDS: Final = 2.0
#: Transfers that take longer are in the status file.
LONG_TRANSFER_SECONDS: Final = 1.0
_MAX_TRANSFERS: Final = 5
#: Former names in the file; a component may run while the package is upgraded.
_FORMER_NAMES: Final = {"begun": "started", "heard": "received"}


@dataclass(slots=True)
class ComponentControl:
    """Stops a component, and shows its progress."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)  #: posts are received from now on
    counters: ConsumerCounters = field(default_factory=ConsumerCounters)
    transfers: TransferRegistry = field(default_factory=TransferRegistry)
    plugin_metrics: Callable[[], Mapping[str, Mapping[str, float]]] = dict  #: by plugin


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    pid: int
    started: int  #: of the process, in the kernel's ticks
    since: float
    ready: bool = False
    received: int = 0
    postponed: int = 0
    last: float = 0.0
    lag: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    rate: float = 0.0  #: messages per second since the last write
    bytes: int = 0
    queued: int | None = None
    transfers: list[tuple[str, int, int | None]] = field(default_factory=list)  #: name, done, total

    @property
    def running(self) -> bool:
        return process_start(self.pid) == self.started


def process_start(pid: int) -> int | None:
    """The start time of a process in ticks; None if it does not run."""
    try:
        # The name, in parentheses, may contain spaces: count from behind it.
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if status[0] == "Z" else int(status[19])


def status_file(settings: PumpSettings) -> Path:
    return state_folder(settings) / f"standing_{settings.instance:02d}.json"


def read_status(settings: PumpSettings) -> ComponentStatus | None:
    try:
        fields: dict[str, Any] = json.loads(status_file(settings).read_text())
        return ComponentStatus(**{_FORMER_NAMES.get(name, name): fields[name] for name in fields})
    except (OSError, ValueError, TypeError):
        return None


async def write_status_regularly(settings: PumpSettings, control: ComponentControl) -> None:
    """Until cancelled."""
    path = status_file(settings)
    await asyncio.to_thread(private_directory, path.parent)
    started, since = process_start(os.getpid()) or 0, time.time()
    received, written = 0, time.monotonic()
    try:
        while True:
            now = time.monotonic()
            rate = (control.counters.received - received) / max(now - written, 1e-3)
            received, written = control.counters.received, now
            current_status = _status(control, started, since, rate)
            await asyncio.to_thread(_write, path, json.dumps(asdict(current_status)))
            if control.ready.is_set():
                await asyncio.sleep(WRITE_SECONDS)
            else:
                await control.ready.wait()
    finally:
        path.unlink(missing_ok=True)


def _status(control: ComponentControl, started: int, since: float, rate: float) -> ComponentStatus:
    counters = control.counters
    long = control.transfers.longer_than(LONG_TRANSFER_SECONDS)[:_MAX_TRANSFERS]
    return ComponentStatus(
        os.getpid(),
        started,
        since,
        control.ready.is_set(),
        counters.received,
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
    temporary = path.with_suffix(".draft")
    temporary.write_text(text)
    temporary.rename(path)
