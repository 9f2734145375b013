"""Reads figures for the panel of `penstock up` once a second, in a thread.

The message rate comes from the broker's management API, the memory of the parts from /proc, the
figures of applications from the extensions' probes. What cannot be read is left empty.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from penstock.cli.up.extension import BROKER, Figures, Probe
from penstock.client.management import call_management_api
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.up.supervisor import Supervisor

_T = TypeVar("_T")

POLL_SECONDS: Final = 1.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class View:
    memory: Mapping[str, int] = field(default_factory=dict)  #: bytes, by part
    rate: float | None = None  #: published messages per second
    figures: tuple[Figures, ...] = ()  #: of the applications

    @property
    def headline(self) -> str | None:
        return next((each.headline for each in self.figures if each.headline), None)


class Monitor:
    def __init__(
        self, supervisor: Supervisor, probes: Sequence[Probe], update: Callable[[View], None]
    ) -> None:
        self._supervisor = supervisor
        self._probes = probes
        self._update = update
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(POLL_SECONDS)  # a read that hangs ends with the process

    def read(self) -> View:
        runners = self._supervisor.runners
        addresses = {each.part.name: each.addresses for each in runners}
        api = next((url for url in addresses[BROKER] if url.startswith("http")), None)
        figures = (_none_on_error(lambda: probe.read(addresses)) for probe in self._probes)  # noqa: B023
        return View(
            {each.part.name: footprint(each.pid) for each in runners if each.pid},
            None if api is None else _none_on_error(lambda: _rate(api)),
            tuple(each for each in figures if each is not None),
        )

    def _run(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            self._update(self.read())
        for probe in self._probes:
            probe.close()


def _none_on_error(work: Callable[[], _T]) -> _T | None:
    """None while a part is not running, or replies with something else."""
    try:
        return work()
    except (OSError, LookupError, TypeError, ValueError, PenstockError):
        return None


def _rate(api: str) -> float:
    stats = call_management_api(api, "/api/overview?columns=message_stats")["message_stats"]
    return float(stats["publish_details"]["rate"])


def footprint(pid: int) -> int:
    """Private bytes of a process and its descendants; 0 where /proc does not tell. Shared memory
    (libraries, PostgreSQL's buffers) would be counted several times."""
    total, left = 0, [pid]
    while left:
        each = left.pop()
        try:
            _, resident, shared, *_ = Path(f"/proc/{each}/statm").read_text().split()
            children = _children(Path(f"/proc/{each}/task"))
        except (OSError, ValueError):  # the process has ended, or there is no /proc
            continue
        total += (int(resident) - int(shared)) * _PAGE
        left += children
    return total


def _children(tasks: Path) -> list[int]:
    """Of all threads: Spark starts Python's workers from one of many."""
    return [int(pid) for path in tasks.glob("*/children") for pid in path.read_text().split()]
