"""`penstock pipeline`: messages into tables on Spark; run, caught up, replayed, compacted.

Thin: the engine is `penstock_spark`, what a flow does with its messages is the application's.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import DEFAULT_URL, Url
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.options import Cache, ConfigFile, Data, Database, Overrides, effective, prepare
from penstock.cli.shutdown import stop_event
from penstock_spark.commands.options import (
    FailOnLoss,
    FlowName,
    LargestBatch,
    Master,
    Remote,
    SparkSettings,
    open_flow,
    parse_time,
    spark_settings,
)
from penstock_spark.commands.status import status

if TYPE_CHECKING:
    from penstock_spark.directory import FlowDirectory


# `penstock pipeline letters`: the last messages that were none, with the reason and their bytes.
#
# Read off the lake's files as they lie, newest first: no Spark is started for it.

DEAD_LETTERS_TABLE: Final = "silver.dead_letters"
#: Bytes that are shown of a message; `--json` has all of them.
_SHOWN_BYTES: Final = 24


def letters(
    flow: Annotated[str, typer.Option("--flow", metavar="NAME", help="Whose.")] = "hives",
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="The last so many.")
    ] = 20,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="WORD", help="Only those of this reason.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line each, whole.")] = False,
) -> None:
    """Show the dead letters: messages that are none, why, and what was in them."""
    home = effective(file, pairs, data).settings.data
    found = list(islice(_newest_first(home, flow, reason), count))
    for row in found:
        typer.echo(json.dumps(_dead_letter_record(row)) if as_json else _format_dead_letter(row))
    if not found and not as_json:
        typer.echo(
            f"No dead letters of flow {flow}" + (f" with reason {reason}." if reason else ".")
        )


def _newest_first(home: Path, flow: str, reason: str | None) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    from penstock_spark.directory import FlowDirectory

    table = FlowDirectory(home, flow).lake.table(DEAD_LETTERS_TABLE)
    for file in reversed(table.log.files()):
        rows = (
            pq.ParquetFile(table.folder / file.path)
            .read()
            .sort_by([("received_at", "descending"), ("offset", "descending")])
        )
        yield from (row for row in rows.to_pylist() if reason in (None, row["reason"]))


def _dead_letter_record(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "received_at": row["received_at"].isoformat(),
        **{name: row[name] for name in ("stream", "offset", "topic", "reason")},
        "raw": None if row["raw"] is None else row["raw"].hex(),
    }


def _format_dead_letter(row: dict[str, Any]) -> str:
    raw = row["raw"] or b""
    more = f" … {len(raw)} bytes" if len(raw) > _SHOWN_BYTES else ""
    came = row["received_at"].strftime("%Y-%m-%d %H:%M:%SZ")
    return (
        f"{came}  {row['reason']:<16} {row['topic']}  {raw[:_SHOWN_BYTES].hex(' ')}{more}".rstrip()
    )


app = typer.Typer(no_args_is_help=True, help="Messages into tables, on Spark.")
app.command()(status)
app.command()(letters)

#: Files of batches that are written for hours would be too many to read.
COMPACT_SECONDS: Final = 3600.0


@app.command()
def run(
    flow: FlowName = "hives",
    url: Url = DEFAULT_URL,
    every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="From one batch to the next.")
    ] = 0.5,
    max_batch: LargestBatch = 500_000,
    loss: FailOnLoss = True,
    compact_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Compact so often; 0 for never.")
    ] = COMPACT_SECONDS,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Figures for Prometheus, on loopback.")
    ] = None,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Apply messages as they come: one line when it is ready; SIGTERM ends it after its batch."""
    from penstock_spark.compaction import compaction_task
    from penstock_spark.flow import run_periodic_tasks
    from penstock_spark.runner import FlowRunner, SourceOptions

    source = SourceOptions(url, max_offsets=max_batch, fail_on_loss=loss, every=every)
    opened = open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs)
    with opened as found:
        if metrics is not None:
            _serve(found.directory, metrics)
        runner = FlowRunner(found.spark, found.flow, found.directory, source)
        ready = f"penstock pipeline ready: {found.flow.name} {url}"

        periodic_tasks = [*found.flow.periodic_tasks]
        if compact_every:
            periodic_tasks.append(compaction_task(found.directory, compact_every))

        def follow(stop: threading.Event) -> None:
            with run_periodic_tasks(found.spark, found.flow.name, periodic_tasks):
                runner.run(stop, ready=lambda: typer.echo(ready))

        asyncio.run(_until_stopped(follow, with_stdin))


@app.command()
def once(
    flow: FlowName = "hives",
    url: Url = DEFAULT_URL,
    max_batch: LargestBatch = 500_000,
    loss: FailOnLoss = True,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Apply what the streams hold now, and end."""
    from penstock_spark.progress import FlowProgress
    from penstock_spark.runner import FlowRunner, SourceOptions

    source = SourceOptions(url, max_offsets=max_batch, fail_on_loss=loss)
    with open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs) as found:
        progress = FlowProgress(found.directory.progress, found.flow.name)
        before = progress.last_batch()
        FlowRunner(found.spark, found.flow, found.directory, source).run_available_now()
        done = progress.last_batch()
        if done is None or done == before:
            typer.echo("nothing new")
        else:
            typer.echo(f"{done.total_rows:,} messages in {done.total_batches} batches")


@app.command()
def replay(
    flow: FlowName = "hives",
    since: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            parser=parse_time,
            metavar="MOMENT",
            help="Messages since then, or a little before; all of them unless said.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            parser=parse_time,
            metavar="MOMENT",
            help="Leave out later ones, and leave the result aside to be looked at.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    max_batch: LargestBatch = 1_000_000,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Make a flow's tables anew from the messages kept, while it goes on running."""
    from penstock_spark.replay import FlowReplay

    with open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs) as found:
        done = FlowReplay(found.spark, found.flow, found.directory, max_batch).run(since, until)
    where = "is current" if done.adopted else "lies aside"
    typer.echo(
        f"{done.rows:,} messages replayed, batches {done.first} to {done.last}; "
        f"generation {done.generation} {where}"
    )


@app.command()
def compact(
    flow: FlowName = "hives",
    first: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="Days from this one.")
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="To this one.")
    ] = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Merge the many small files of batches into few large ones, while the flow goes on."""
    from penstock_spark.compaction import compact as merge
    from penstock_spark.directory import FlowDirectory, FlowLock
    from penstock_spark.session import flow_session

    directory = FlowDirectory(prepare(file, pairs, data).settings.data, flow)
    days = (first.date() if first else date.min, last.date() if last else date.max)
    with (
        directory.locks.hold(FlowLock.FILES, wait=False),
        flow_session(directory.flow, master, None, spark_settings(spark)) as session,
    ):
        done = merge(session, directory.lake, days)
    for each in done:
        typer.echo(
            f"{each.table} {each.day}: {each.rows:,} rows, {each.before} files → {each.after}"
        )
    if not done:
        typer.echo("nothing to compact")


def _serve(directory: FlowDirectory, port: int) -> None:
    from penstock_spark.status import flow_metrics

    serve_metrics(port, flow_metrics(directory))


async def _until_stopped(work: Callable[[threading.Event], None], with_stdin: bool) -> None:
    """Do it in a thread, which is told when it is time to stop."""
    told = threading.Event()
    async with stop_event(with_stdin) as stop:
        working = asyncio.create_task(asyncio.to_thread(work, told))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.set()
            stopping.cancel()
        await working
