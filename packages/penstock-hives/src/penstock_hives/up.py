"""What hives adds to `penstock up`: pipeline, demonstration, public page, alerts, and a panel.

The panel shows the pipeline's progress files and the occupancy in the database, without Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote as quote_url

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.up.extension import (
    BROKER,
    DATABASE,
    Extension,
    Lines,
    Shell,
    UpOptions,
    flags,
    listen_flags,
)
from penstock.cli.up.supervisor import Addresses, Part
from penstock.client.management import call_management_api
from penstock.core.config import UpSettings
from penstock.core.errors import PenstockError
from penstock.core.java import java_problem
from penstock_hives.demo_account import LOGIN, PASSWORD
from penstock_hives.occupancy.models import whole_percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock_spark.progress import FlowProgress
    from penstock_store import Database

PIPELINE: Final = "pipeline"
DEMO: Final = "demo"
HIVES: Final = "hives"
ALERTS: Final = "alerts"
FLOW: Final = "hives"
#: Seconds for the pipeline to finish its batch.
_PIPELINE_GRACE: Final = 30.0
#: Lines that Java and Spark write at every start.
_NOISE: Final = (
    "Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "To adjust logging level",
    "Unable to load native-hadoop library",
    "Setting Spark log level",
)


def extend(options: UpOptions) -> Extension:
    needs = [BROKER, DATABASE]
    parts: list[Part] = []
    left_out: dict[str, str] = {}

    def pipeline(found: Addresses) -> list[str]:
        return [*options.command("pipeline", "run"), *options.amqp_and_database(found)]

    def demo(found: Addresses) -> list[str]:
        reach = options.amqp_and_database(found) if options.pipeline else options.amqp(found)
        mqtt = flags("--mqtt", options.listener("mqtt", found))
        return [*options.command("demo"), *reach, *mqtt, "--hives", str(options.hives)]

    def serve(found: Addresses) -> list[str]:
        http = [url for url in found[BROKER] if url.startswith("http://")]
        management = [url.replace("://", "://guest:guest@") for url in http[:1]]
        return [
            *options.command("hives", "serve", "--workers", "1"),
            *options.amqp_and_database(found),
            *listen_flags(options.site, UpSettings().site),
            *flags("--mqtt", options.listener("mqtt", found)),
            *flags("--management", management),
        ]

    def alerts(found: Addresses) -> list[str]:
        return [*options.command("hives", "alerts"), *options.amqp_and_database(found)]

    problem = java_problem() if options.pipeline else None
    if problem is not None:
        left_out[PIPELINE] = problem
    elif options.pipeline:
        parts.append(Part(PIPELINE, pipeline, needs, _PIPELINE_GRACE, _NOISE))
    if options.demo:
        parts.append(Part(DEMO, demo, needs))
    if options.pipeline and options.applications:
        parts += [Part(HIVES, serve, needs), Part(ALERTS, alerts, needs)]
    shown = options.pipeline and problem is None
    return Extension(
        parts, left_out, _pages, _steps, (lambda: HivesProbe(options)) if shown else None
    )


def _pages(found: Addresses) -> Lines:
    pages = [(url, "public page; API under /v1/docs") for url in found.get(HIVES, ())]
    if pages and found.get(DEMO):
        pages.append((f"   {LOGIN}", f"signs in there: {PASSWORD}"))
    return pages


def _steps(shell: Shell) -> Lines:
    steps: list[tuple[str, str]] = []
    sub, amqp = f"{shell.penstock} sub", shell.url("amqp")
    if shell.addresses.get(DEMO):
        steps.append((f"{sub} 'sensors.#'{amqp}", "sensor messages"))
    if shell.addresses.get(PIPELINE):
        steps.append((f"{sub} 'occupancy.#'{amqp}", "occupancy of hives"))
        mqtt = [url for url in shell.addresses.get(BROKER, ()) if url.startswith("mqtt://")]
        steps += [(f"{sub} {url} 'occupancy/#'", "over MQTT") for url in mqtt[:1]]
        status = " ".join([f"{shell.penstock} pipeline status{amqp}", *map(quote, shell.data)])
        steps.append((status, "lag, tables"))
    return steps


#: Rows of the panel in a tall terminal.
MOST_FIGURES: Final = 24
_QUERY: Final = """
    SELECT h.name AS hive, coalesce(a.city, '') AS city, s.occupancy AS people, s.percent,
           s.level, s.trend, s.as_of,
           count(*) OVER () AS hives, sum(s.occupancy) OVER ()::bigint AS inside
      FROM hive_status s JOIN hive h ON h.id = s.hive_id LEFT JOIN address a ON a.id = h.address_id
     WHERE s.as_of >= %(since)s
     ORDER BY s.level IS NULL, s.percent DESC NULLS LAST, h.id LIMIT %(limit)s
"""
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_LEVELS: Final = {"quiet": "green", "moderate": "cyan", "busy": "yellow", "full": "red"}
_TRENDS: Final = {"rising": "↗", "steady": "→", "falling": "↘"}
#: Eighths of a block, for bars.
_ENDS: Final = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class VenueFigure:
    hive: str
    city: str
    people: int
    percent: float | None
    level: str | None
    trend: str
    as_of: datetime


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch that the pipeline applied."""

    rows: int
    seconds: float
    at: float  #: seconds since 1970


@dataclass(frozen=True, slots=True)
class HivesFigures:
    """The pipeline's lag, and the fullest venues; None is unknown."""

    lag: int | None = None  #: messages that are not applied yet
    batch: LastBatch | None = None
    waiting: str = ""  #: the reason if the pipeline waits
    venues: Sequence[VenueFigure] = field(default_factory=tuple)  #: the fullest
    hives: int = 0  #: venues with data
    people: int = 0  #: in all of them
    first: VenueFigure | None = None  #: the first venue with a report after the start

    @property
    def headline(self) -> str | None:
        if self.first is None:
            return None
        full = "" if self.first.percent is None else f", {whole_percent(self.first.percent)} % full"
        return f"{self.first.hive}: {self.first.people} people{full}"

    def status(self, now: float) -> Text:
        if self.waiting:
            return Text.assemble("   pipeline waits: ", (self.waiting, "yellow"))
        if self.batch is None:
            return Text("   the pipeline is starting", style="dim")
        lag = "–" if self.lag is None else f"{self.lag:,}"
        ago = max(0.0, now - self.batch.at)
        batch = f"   batch of {self.batch.rows:,} in {self.batch.seconds:.1f} s, {ago:.0f} s ago"
        return Text.assemble("   lag ", (lag, "bold"), (batch, "dim"))

    def draw(self, rows: int, width: int) -> list[RenderableType]:
        if not self.venues:
            return [Text("No data yet", style="dim")]
        people = f"  {self.people:,} people in {self.hives:,} hives"
        bar = max(10, min(40, width - 58))
        table = Table.grid(padding=(0, 1))
        name = width - bar - 26
        for wrap in (name, 6, 1, bar, 5, 8):
            table.add_column(no_wrap=True, overflow="ellipsis", max_width=wrap)
        table.columns[0].width = min(36, name)
        for index in (1, 4):
            table.columns[index].justify = "right"
        for figure in self.venues[:rows]:
            table.add_row(*_row(figure, bar))
        return [Text.assemble(("Occupancy", "bold"), people), Padding(table, (0, 0, 0, 2))]


def _row(figure: VenueFigure, bar: int) -> list[RenderableType]:
    level = figure.level or "unknown"
    style = _LEVELS.get(level, "dim")
    city = f", {figure.city}" if figure.city and figure.city not in figure.hive else ""
    return [
        Text.assemble(figure.hive, (city, "dim")),
        Text(f"{figure.people:,}", style="bold"),
        Text(_TRENDS.get(figure.trend, ""), style=style),
        Text(_bar(figure.percent or 0.0, bar), style=style),
        "" if figure.percent is None else f"{whole_percent(figure.percent)} %",
        Text(level, style=style),
    ]


def _bar(percent: float, width: int) -> str:
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_ENDS[rest] if rest else "")).ljust(width, "·")


class HivesProbe:
    """Reads the pipeline's progress and the venues' figures, once a second."""

    def __init__(self, options: UpOptions) -> None:
        self._options = options
        self._began = datetime.now(UTC)
        self._database: Database | None = None
        self._progress: FlowProgress | None = None
        self._first: VenueFigure | None = None

    def read(self, addresses: Addresses) -> HivesFigures:
        found: dict[str, Any] = {}
        if addresses.get(PIPELINE):
            api = next((url for url in addresses[BROKER] if url.startswith("http")), None)
            found |= self._pipeline(api)
        url = self._options.database_url(addresses)
        if url is not None:
            found |= self._venues(url)
        return HivesFigures(**found)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _pipeline(self, api: str | None) -> dict[str, Any]:
        from penstock_spark.progress import FlowProgress, RunState

        if self._progress is None:
            self._progress = FlowProgress(self._options.data_dir / "progress", FLOW)
        done, run_status = self._progress.last_batch(), self._progress.run_status()
        found: dict[str, Any] = {}
        if run_status is not None and run_status.state is RunState.WAITING:
            found["waiting"] = run_status.reason
        if done is not None:
            found["batch"] = LastBatch(done.rows, done.seconds, done.at)
            if api is not None:
                found["lag"] = _lag(api, done.ends)
        return found

    def _venues(self, url: str) -> dict[str, Any]:
        from penstock_store import Database

        if self._database is None:
            self._database = Database(url)
        try:
            rows = self._database.rows(_QUERY, {"since": _ALWAYS, "limit": MOST_FIGURES})
            if self._first is None:
                new = self._database.rows(_QUERY, {"since": self._began, "limit": 1})
                self._first = next(iter(_figures(new)), None)
        except (OSError, PenstockError):  # the database is starting or stopped
            return {}
        return {
            "venues": _figures(rows),
            "hives": rows[0]["hives"] if rows else 0,
            "people": rows[0]["inside"] if rows else 0,
            "first": self._first,
        }


def _lag(api: str, ends: dict[str, int]) -> int | None:
    """Messages that the pipeline has not read yet; None if the broker does not answer."""
    try:
        behind = 0
        for stream, end in ends.items():
            path = f"/api/streams/{quote_url(stream, safe='')}?columns=committed_offset"
            behind += max(0, call_management_api(api, path)["committed_offset"] - end)
        return behind
    except (OSError, LookupError, TypeError, ValueError, PenstockError):
        return None


def _figures(rows: Sequence[dict[str, Any]]) -> tuple[VenueFigure, ...]:
    names = VenueFigure.__slots__
    return tuple(VenueFigure(**{name: row[name] for name in names}) for row in rows)
