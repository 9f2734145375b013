"""What the parts do, looked at once a second for the panel of `penstock up`.

The broker's management API gives the message rate, /proc the memory of the parts, the extensions'
probes the figures of applications. A source that does not answer leaves its place empty. The work
is done in a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from penstock.cli.up.extension import BROKER, Figures, Probe
from penstock.client.management import call_management_api
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.up.supervisor import Supervisor

_T = TypeVar("_T")

LOOK_SECONDS: Final = 1.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class View:
    """What was seen; None is what could not be."""

    memory: Mapping[str, int] = field(default_factory=dict)  #: bytes, by part
    rate: float | None = None  #: messages a second that are published
    figures: tuple[Figures, ...] = ()  #: of the applications

    @property
    def headline(self) -> str | None:
        return next((each.headline for each in self.figures if each.headline), None)


class Monitor:
    """Looks for the length of a `with` block, and reports what it has seen."""

    def __init__(
        self, supervisor: Supervisor, probes: Sequence[Probe], seen: Callable[[View], None]
    ) -> None:
        self._supervisor = supervisor
        self._probes = probes
        self._seen = seen
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="monitor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        # A look at something that does not answer is not waited for: the process ends anyway.
        self._thread.join(LOOK_SECONDS)

    def look(self) -> View:
        keepers = self._supervisor.keepers
        addresses = {each.part.name: each.addresses for each in keepers}
        api = next((url for url in addresses[BROKER] if url.startswith("http")), None)
        figures = (_unless_away(lambda: probe.look(addresses)) for probe in self._probes)  # noqa: B023
        return View(
            {each.part.name: footprint(each.pid) for each in keepers if each.pid},
            None if api is None else _unless_away(lambda: _rate(api)),
            tuple(each for each in figures if each is not None),
        )

    def _look_on(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self._seen(self.look())
        for probe in self._probes:
            probe.close()


def _unless_away(work: Callable[[], _T]) -> _T | None:
    """None while a part is starting, stopping, away, or answers something else."""
    try:
        return work()
    except (OSError, LookupError, TypeError, ValueError, PenstockError):
        return None


def _rate(api: str) -> float:
    stats = call_management_api(api, "/api/overview?columns=message_stats")["message_stats"]
    return float(stats["publish_details"]["rate"])


def footprint(pid: int) -> int:
    """Bytes that a process and its descendants have for themselves; 0 where nobody says.

    What they share (libraries, PostgreSQL's buffers) would be counted once for each of them.
    """
    total, left = 0, [pid]
    while left:
        each = left.pop()
        try:
            _, resident, shared, *_ = Path(f"/proc/{each}/statm").read_text().split()
            children = _children(Path(f"/proc/{each}/task"))
        except (OSError, ValueError):  # it has just ended, or the system has no such thing
            continue
        total += (int(resident) - int(shared)) * _PAGE
        left += children
    return total


def _children(tasks: Path) -> list[int]:
    """Of all its threads: Spark's Java starts Python's workers from one of many."""
    return [int(pid) for path in tasks.glob("*/children") for pid in path.read_text().split()]
