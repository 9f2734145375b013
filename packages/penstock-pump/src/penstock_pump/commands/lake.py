"""`penstock pump archive | trace | summary`: what happened to files, from the lake.

`archive` binds the stream `announcements` to exchanges. `penstock pipeline run --flow pump` writes
tables from it, which `trace` and `summary` read.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from penstock.cli.options import ManagementUrl, effective
from penstock.core.errors import ConfigurationError, NotFound
from penstock_pump.commands import options
from penstock_pump.commands.options import component_settings
from penstock_pump.config.settings import Component

if TYPE_CHECKING:
    from penstock_pump.lake.trace import TraceHop

Exchanges = Annotated[list[str], typer.Argument(metavar="EXCHANGE…", help="Exchanges to archive.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per hop.")]
Days = Annotated[int, typer.Option(min=1, metavar="N", help="Search the last N days.")]
Day = Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="[default: today, in UTC]")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a plot: .svg, .png or .pdf.")
]


def archive(exchanges: Exchanges, conf: options.Conf = None, broker: options.Broker = None) -> None:
    """Record the messages of exchanges in the stream `announcements`, for the lake."""
    from penstock_pump.components.message_archive import archive_exchanges
    from penstock_pump.names import ANNOUNCEMENT_STREAM

    settings = component_settings(Component.SHOVEL, conf, broker=broker)
    asyncio.run(archive_exchanges(settings, exchanges))
    typer.echo(f"stream {ANNOUNCEMENT_STREAM} records {', '.join(exchanges)}")


def trace(
    name: Annotated[str, typer.Argument(help="File name, end of a path, or pattern.")],
    days: Days = 7,
    data: options.Data = None,
    url: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Show the path of a file hop by hop: where it was announced, who fetched it, the outcome.

    It is read from the lake; if the lake has no announcements, or with --url, from the stream
    `announcements` of the broker.
    """
    from penstock.client.management import ManagementClient, management_url
    from penstock_pump.lake.trace import has_archive, trace_stream
    from penstock_pump.lake.trace import trace as traced

    today = datetime.now(UTC).date()
    if url is None and has_archive(_home(data)):
        hops = traced(_home(data), name, (today - timedelta(days=days), today))
    else:
        address = management_url(effective(data=data).settings.broker, url)
        parts = urlsplit(address)
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        hops = trace_stream(ManagementClient(address, user, password), name, days)
    if not hops:
        raise NotFound(f"no announcement of {name!r} in the archive of the last {days} days")
    if as_json:
        for hop in hops:
            typer.echo(json.dumps(asdict(hop), default=str, ensure_ascii=False))
        return
    _show(hops)


def summary(day: Day = None, plot: Plot = None, data: options.Data = None) -> None:
    """Show volume, latency, duplicates and failures of each exchange on one day. Runs Spark."""
    from penstock_pump.lake.flow import NAME, summarise
    from penstock_spark.directory import FlowDirectory
    from penstock_spark.session import flow_session

    with flow_session("pump summary") as spark:
        found = summarise(spark, FlowDirectory(_home(data), NAME).lake, _date(day))
        rows = [row.asDict() for row in found.collect()]
    if not rows:
        raise NotFound(f"no announcements in the archive of {_date(day)}")
    _show_summary(rows)
    if plot is not None:
        from penstock_pump.lake.trace import plot_summary

        plot_summary(rows, plot)
        typer.echo(f"{plot}")


def _home(data: Path | None) -> Path:
    return effective(data=data).settings.data


def _date(day: str | None) -> date:
    try:
        return datetime.now(UTC).date() if day is None else date.fromisoformat(day)
    except ValueError:
        raise ConfigurationError(f"--day {day!r} should be as 2026-11-15") from None


def _show(hops: list[TraceHop]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("time (UTC)", "after", "exchange", "event", "code", "by", "took", "file", "")
    for hop in hops:
        block = "" if hop.block is None else f" {hop.block + 1}/{hop.blocks}"
        table.add_row(
            f"{hop.at:%Y-%m-%d %H:%M:%S.%f}"[:-3],
            f"{hop.after:.3f}s",
            hop.exchange,
            (hop.event if hop.kind == "post" else hop.kind) + block,
            "" if hop.code is None else f"[{'green' if hop.code < 400 else 'red'}]{hop.code}",
            f"{hop.user}@{hop.host}" if hop.user else "",
            "" if hop.seconds is None else f"{hop.seconds:.3f}s",
            hop.base_url.rstrip("/") + "/" + hop.relpath.lstrip("/"),
            hop.message or "",
        )
    _print(Console(), table)


def _show_summary(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    heads = ("exchange", "posts", "files", "MB", "p50", "p95", "max", "duplicates", "done")
    others = ("unchanged", "winnowed", "failed", "unreadable")
    table = Table(*heads, *others, title=str(rows[0]["day"]))
    for row in rows:
        late = [row[f"latency_{name}"] for name in ("p50", "p95", "max")]
        table.add_row(
            row["exchange"],
            *(f"{row[name]:,}" for name in ("posts", "files")),
            f"{row['bytes'] / 1e6:,.1f}",
            *("" if each is None else f"{each:.2f}s" for each in late),
            *(f"{row[name]:,}" for name in ("duplicates", "done", "unchanged", "winnowed")),
            *(f"{row[name]:,}" for name in ("failed", "unreadable")),
        )
    _print(Console(), table)


def _print(console: Any, table: Any) -> None:
    """A file or a pipe has no width, so rows must not be cut."""
    if not console.is_terminal:
        console.width = 240
    console.print(table)
