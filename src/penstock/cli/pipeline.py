"""`penstock pipeline`: messages into tables on Spark; run, caught up, replayed, compacted.

Thin: the engine is `penstock.pipeline`, what a flow does with its messages is the application's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.backtest import backtest
from penstock.cli.fabric import DEFAULT_URL, Url
from penstock.cli.forecast import forecast
from penstock.cli.lifetime import until_stopped
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_letters import letters
from penstock.cli.pipeline_options import (
    Cache,
    Database,
    FlowName,
    LargestBatch,
    Loss,
    Master,
    Remote,
    SparkSettings,
    moment,
    open_flow,
    spark_settings,
)
from penstock.cli.pipeline_status import status

if TYPE_CHECKING:
    from penstock.pipeline.place import Place

app = typer.Typer(no_args_is_help=True, help="Messages into tables, on Spark.")
app.command()(status)
app.command()(letters)
app.command()(backtest)
app.command()(forecast)

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
    loss: Loss = True,
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
    from penstock.pipeline.chores import doing
    from penstock.pipeline.runner import Engine, Source
    from penstock.pipeline.tidying import tidying

    source = Source(url, max_offsets=max_batch, fail_on_loss=loss, every=every)
    opened = open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs)
    with opened as found:
        if metrics is not None:
            _serve(found.place, metrics)
        engine = Engine(found.spark, found.flow, found.place, source)
        ready = f"penstock pipeline ready: {found.flow.name} {url}"

        chores = [*found.flow.chores]
        if compact_every:
            chores.append(tidying(found.place, compact_every))

        def follow(stop: threading.Event) -> None:
            with doing(found.spark, found.flow.name, chores):
                engine.follow(stop, ready=lambda: typer.echo(ready))

        asyncio.run(_until_stopped(follow, with_stdin))


@app.command()
def once(
    flow: FlowName = "hives",
    url: Url = DEFAULT_URL,
    max_batch: LargestBatch = 500_000,
    loss: Loss = True,
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
    from penstock.pipeline.progress import Progress
    from penstock.pipeline.runner import Engine, Source

    source = Source(url, max_offsets=max_batch, fail_on_loss=loss)
    with open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs) as found:
        progress = Progress(found.place.progress, found.flow.name)
        before = progress.done()
        Engine(found.spark, found.flow, found.place, source).once()
        done = progress.done()
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
            parser=moment,
            metavar="MOMENT",
            help="Messages since then, or a little before; all of them unless said.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            parser=moment,
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
    from penstock.pipeline.replay import Replay

    with open_flow(flow, url, database, cache, master, remote, spark, data, file, pairs) as found:
        done = Replay(found.spark, found.flow, found.place, max_batch).run(since, until)
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
    from penstock.pipeline.claims import Claim
    from penstock.pipeline.compaction import compact as merge
    from penstock.pipeline.opening import engine_session
    from penstock.pipeline.place import Place

    place = Place(prepare(file, pairs, data).settings.data, flow)
    days = (first.date() if first else date.min, last.date() if last else date.max)
    with (
        place.claims.hold(Claim.FILES, wait=False),
        engine_session(place.flow, master, None, spark_settings(spark)) as session,
    ):
        done = merge(session, place.lake, days)
    for each in done:
        typer.echo(
            f"{each.table} {each.day}: {each.rows:,} rows, {each.before} files → {each.after}"
        )
    if not done:
        typer.echo("nothing to compact")


def _serve(place: Place, port: int) -> None:
    from penstock.pipeline.metrics import registry

    serve_metrics(port, registry(place))


async def _until_stopped(work: Callable[[threading.Event], None], with_stdin: bool) -> None:
    """Do it in a thread, which is told when it is time to stop."""
    told = threading.Event()
    async with until_stopped(with_stdin) as stop:
        working = asyncio.create_task(asyncio.to_thread(work, told))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.set()
            stopping.cancel()
        await working
