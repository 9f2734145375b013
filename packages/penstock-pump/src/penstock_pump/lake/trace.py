"""The trace of a file, hop by hop, read from the lake without Spark; and the plot of a summary.

A file is named by its name, its path, the end of its path, or a pattern.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import ConfigurationError, NotFound
from penstock_pump.lake.announcements import ANNOUNCEMENT_SCHEMA, ANNOUNCEMENTS, row_of
from penstock_pump.lake.flow import NAME
from penstock_pump.names import ANNOUNCEMENT_STREAM
from penstock_spark.lake import Lake

if TYPE_CHECKING:
    from penstock.client.management import ManagementClient

_WILDCARDS: Final = "*?["
#: Characters that posts do not encode.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+")
_PLOT_FORMATS: Final = (".svg", ".png", ".pdf")


@dataclass(frozen=True, slots=True)
class TraceHop:
    """One message about the file: a post at an exchange, or a report."""

    at: datetime
    kind: str
    exchange: str
    relpath: str
    base_url: str
    event: str
    after: float  #: seconds since the file was first announced
    block: int | None = None
    blocks: int | None = None
    size: int | None = None
    code: int | None = None
    message: str | None = None
    host: str | None = None
    user: str | None = None
    seconds: float | None = None


def trace(data: Path, wanted: str, days: tuple[date, date] | None = None) -> list[TraceHop]:
    """The hops of the files of that name, by time."""
    table = Lake.open(data / "lake", NAME).table(ANNOUNCEMENTS)
    between = {} if days is None else {"day": days}
    files = table.files(**between) if table.exists() else []
    if not files:
        raise NotFound(
            f"the lake below {data} has no announcements: run `penstock pump archive EXCHANGE` and "
            "`penstock pipeline run --flow penstock_pump.lake.flow:open_flow`"
        )
    names = [name for name in ANNOUNCEMENT_SCHEMA.names if name != "day"]
    tables = (table.read_file(file, names) for file in files)
    return sorted((hop for rows in tables for hop in _hops(rows, wanted)), key=lambda hop: hop.at)


def has_archive(data: Path) -> bool:
    """Whether the lake has announcements."""
    table = Lake.open(data / "lake", NAME).table(ANNOUNCEMENTS)
    return table.exists() and bool(table.files())


def trace_stream(client: ManagementClient, wanted: str, days: int) -> list[TraceHop]:
    """The same, from the broker's stream: its messages are searched by the broker."""
    is_pattern = any(sign in wanted for sign in _WILDCARDS)
    query: dict[str, str | int] = {
        "count": 500,
        "truncate": 1 << 20,
        "from": int((time.time() - days * 86_400) * 1000),
        "text": "" if is_pattern else max(_PLAIN.findall(wanted), key=len, default=""),
    }
    hops: list[TraceHop] = []
    while True:
        answer = client.get_json(f"/api/queues/%2F/{ANNOUNCEMENT_STREAM}/messages", query)
        for message in answer["messages"]:
            row = dict.fromkeys(ANNOUNCEMENT_SCHEMA.names) | row_of(_stored_message(message))
            if row["relpath"] is not None and _matches(row["relpath"], wanted):
                hops.append(_hop(row))
        if answer["next"] is None:
            return hops
        query["offset"] = answer["next"]


def _stored_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the API as a row of bronze."""
    payload = message["payload"]
    is_text = message["payload_encoding"] == "string"
    at = datetime.fromtimestamp(message["timestamp"] / 1000, UTC)
    return {
        "timestamp": at,
        "exchange": message["exchange"],
        "routing_key": message["routing_key"],
        "stream": ANNOUNCEMENT_STREAM,
        "offset": int(message["id"]),
        "day": at.date(),
        "headers": message["properties"].get("headers") or {},
        "body": payload.encode() if is_text else base64.b64decode(payload),
    }


def _hops(rows: pa.Table, wanted: str) -> Iterator[TraceHop]:
    if not any(sign in wanted for sign in _WILDCARDS):
        ending = pc.ends_with(rows["relpath"], pattern=wanted.strip("/"))
        rows = rows.filter(pc.fill_null(ending, False))
    for row in rows.to_pylist():
        if row["relpath"] is not None and _matches(row["relpath"], wanted):
            yield _hop(row)


def _matches(relpath: str, wanted: str) -> bool:
    path, wanted = relpath.strip("/"), wanted.strip("/")
    if any(sign in wanted for sign in _WILDCARDS):
        return fnmatchcase(path, wanted) or fnmatchcase(path.rpartition("/")[2], wanted)
    return path == wanted or path.endswith("/" + wanted)


def _hop(row: dict[str, Any]) -> TraceHop:
    after = (row["at"] - row["moment"]).total_seconds()
    names = ("at", "kind", "exchange", "relpath", "base_url", "event", "block", "blocks", "size")
    of_report = ("code", "message", "host", "user", "seconds")
    return TraceHop(after=after, **{name: row[name] for name in (*names, *of_report)})


def plot_summary(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plots volume, latency and outcomes of each exchange on one day."""
    if path.suffix not in _PLOT_FORMATS:
        raise ConfigurationError(f"{path}: the suffix should be one of {', '.join(_PLOT_FORMATS)}")
    # Not pyplot, which has global state and needs a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 + 0.45 * len(rows)), layout="constrained")
    names = [row["exchange"] or "(default)" for row in rows]
    volume, latency, outcome = figure.subplots(1, 3, sharey=True)
    volume.barh(names, [row["bytes"] / 1e6 for row in rows], color="#4878a8")
    volume.set_xlabel("MB announced")
    for name, shade in (("latency_p95", "#c9d6e3"), ("latency_p50", "#4878a8")):
        values = [row[name] or 0.0 for row in rows]
        latency.barh(names, values, color=shade, label=name.removeprefix("latency_"))
    latency.set_xlabel("seconds after the first announcement")
    left = [0] * len(rows)
    for name, shade in (
        ("done", "#5a9367"),
        ("unchanged", "#b8c9b0"),
        ("duplicates", "#d9a441"),
        ("failed", "#b5484d"),
    ):
        counts = [int(row[name]) for row in rows]
        outcome.barh(names, counts, left=left, color=shade, label=name)
        left = [sum(pair) for pair in zip(left, counts, strict=True)]
    outcome.set_xlabel("reports and duplicate announcements")
    for axes in (latency, outcome):
        axes.legend(frameon=False, fontsize="small")
    volume.invert_yaxis()
    figure.suptitle(f"The pump on {rows[0]['day']}")
    figure.savefig(path)
