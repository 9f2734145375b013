"""What the parts do, looked at once a second for whoever stands before `penstock up`.

Three sources, each asked when its part is there: the broker's management API for rates and the ends
of streams, the pipeline's progress files for how far it is, the database for how full hives are. A
source that does not answer leaves its place empty: what cannot be seen is not made up. The work is
done in a thread; nothing of Spark is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

from penstock.cli.footprint import footprint
from penstock.cli.management import ask
from penstock.cli.parts import BROKER, DATABASE, PIPELINE
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.supervisor import Supervisor
    from penstock.pipeline.progress import Progress
    from penstock.store import Database

_T = TypeVar("_T")

FLOW: Final = "hives"
LOOK_SECONDS: Final = 1.0
#: As many as a tall terminal has room for.
FIGURES: Final = 24
_FIGURES: Final = """
    SELECT h.name AS hive, coalesce(a.city, '') AS city, s.occupancy AS people, s.percent,
           s.level, s.trend, s.as_of,
           count(*) OVER () AS hives, sum(s.occupancy) OVER ()::bigint AS inside
      FROM hive_status s JOIN hive h ON h.id = s.hive_id LEFT JOIN address a ON a.id = h.address_id
     WHERE s.as_of >= %(since)s
     ORDER BY s.level IS NULL, s.percent DESC NULLS LAST, h.id LIMIT %(limit)s
"""
_EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Figure:
    """How full a hive is."""

    hive: str
    city: str
    people: int
    percent: float | None
    level: str | None
    trend: str
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """The last one the pipeline has applied."""

    rows: int
    seconds: float
    at: float  #: seconds since 1970


@dataclass(frozen=True, slots=True)
class View:
    """What was seen; None is what could not be."""

    memory: Mapping[str, int] = field(default_factory=dict)  #: bytes, by part
    rate: float | None = None  #: messages a second that are published
    lag: int | None = None  #: messages of the flow's streams that are not applied
    batch: Batch | None = None
    waiting: str = ""  #: what the pipeline waits for, if it does
    figures: tuple[Figure, ...] = ()  #: of the fullest hives
    hives: int = 0  #: of how many hives there are figures
    people: int = 0  #: in all of them
    first: Figure | None = None  #: the first of a sensor that reported after the start


class Lookout:
    """Looks for the length of a `with` block, and tells what it has seen."""

    def __init__(
        self,
        data: Path,
        supervisor: Supervisor,
        database: str | None,
        seen: Callable[[View], None],
    ) -> None:
        self._data = data
        self._supervisor = supervisor
        self._database_url = database
        self._seen = seen
        self._began = datetime.now(UTC)
        self._database: Database | None = None
        self._progress: Progress | None = None
        self._first: Figure | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="lookout", daemon=True)

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
        memory = {each.part.name: footprint(each.pid) for each in keepers if each.pid}
        found: dict[str, Any] = {"memory": memory}
        if api is not None:
            found["rate"] = _attempt(lambda: _rate(api))
        if addresses.get(PIPELINE):
            found |= _attempt(lambda: self._look_at_pipeline(api)) or {}
        url = self._database_url or next(iter(addresses.get(DATABASE, ())), None)
        if url is not None and PIPELINE in addresses:
            found |= _attempt(lambda: self._look_at_hives(url)) or {}
        return View(**found)

    def _look_on(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self._seen(self.look())
        if self._database is not None:
            self._database.close()

    def _look_at_pipeline(self, api: str | None) -> dict[str, Any]:
        from penstock.pipeline.progress import Progress, State

        if self._progress is None:
            self._progress = Progress(self._data / "progress", FLOW)
        done, standing = self._progress.done(), self._progress.standing()
        found: dict[str, Any] = {}
        if standing is not None and standing.state is State.WAITING:
            found["waiting"] = standing.reason
        if done is not None:
            found["batch"] = Batch(done.rows, done.seconds, done.at)
            if api is not None:
                found["lag"] = _attempt(lambda: _lag(api, done.ends))
        return found

    def _look_at_hives(self, url: str) -> dict[str, Any]:
        from penstock.store import Database

        if self._database is None:
            self._database = Database(url)
        rows = self._database.rows(_FIGURES, {"since": _EVER, "limit": FIGURES})
        if self._first is None:
            new = self._database.rows(_FIGURES, {"since": self._began, "limit": 1})
            self._first = next(iter(_figures(new)), None)
        return {
            "figures": _figures(rows),
            "hives": rows[0]["hives"] if rows else 0,
            "people": rows[0]["inside"] if rows else 0,
            "first": self._first,
        }


def _attempt(work: Callable[[], _T]) -> _T | None:
    try:
        return work()
    # It is starting, stopping, away, or has answered something else.
    except (OSError, LookupError, TypeError, ValueError, PenstockError):
        return None


def _rate(api: str) -> float:
    stats = ask(api, "/api/overview?columns=message_stats")["message_stats"]
    return float(stats["publish_details"]["rate"])


def _lag(api: str, ends: dict[str, int]) -> int:
    """Of the streams that were read."""
    behind = 0
    for stream, end in ends.items():
        path = f"/api/streams/{quote(stream, safe='')}?columns=committed_offset"
        behind += max(0, ask(api, path)["committed_offset"] - end)
    return behind


def _figures(rows: Sequence[dict[str, Any]]) -> tuple[Figure, ...]:
    names = Figure.__slots__
    return tuple(Figure(**{name: row[name] for name in names}) for row in rows)
