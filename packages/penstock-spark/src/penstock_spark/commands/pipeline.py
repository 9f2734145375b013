"""`penstock pipeline`: runs a flow on Spark, catches up, replays, compacts, shows dead letters."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import DEFAULT_URL, Url
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.options import (
    Cache,
    ConfigFile,
    Data,
    Database,
    Overrides,
    StopWithStdin,
    effective,
    prepare,
)
from penstock.cli.shutdown import stop_event
from penstock_spark.commands.options import (
    FailOnLoss,
    FlowName,
    LakeOptions,
    LakeUrl,
    LargestBatch,
    LargestBatchBytes,
    ManagementApi,
    Master,
    Remote,
    SparkSettings,
    lake_location,
    open_flow,
    parse_batch_bytes,
    parse_time,
)
from penstock_spark.commands.status import status
from penstock_spark.flow import LARGEST_BATCH

if TYPE_CHECKING:
    from penstock_spark.directory import FlowDirectory


DEAD_LETTERS_TABLE: Final = "silver.dead_letters"
#: The number of bytes shown of a message; `--json` has all.
_SHOWN_BYTES: Final = 24


def dead_letters(
    flow: Annotated[str, typer.Option("--flow", metavar="NAME", help="The flow.")] = "hives",
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, help="The number of the last ones.")
    ] = 20,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="WORD", help="Only those with this reason.")
    ] = None,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, with all bytes.")
    ] = False,
) -> None:
    """Show dead letters: messages that could not be decoded, with the reason and their bytes."""
    from penstock_spark.directory import FlowDirectory

    home = effective(file, pairs, data).settings.data
    location = lake_location(lake, lake_options)
    found = list(islice(newest_dead_letters(FlowDirectory(home, flow, location), reason), count))
    for row in found:
        typer.echo(json.dumps(dead_letter_record(row)) if as_json else _format_dead_letter(row))
    if not found and not as_json:
        typer.echo(
            f"No dead letters of flow {flow}" + (f" with reason {reason}." if reason else ".")
        )


def newest_dead_letters(directory: FlowDirectory, reason: str | None) -> Iterator[dict[str, Any]]:
    """Read from the files of the lake, without Spark."""
    table = directory.lake.table(DEAD_LETTERS_TABLE)
    for file in reversed(table.files() if table.exists() else []):
        order = [("received_at", "descending"), ("offset", "descending")]
        rows = table.read_file(file).sort_by(order)
        yield from (row for row in rows.to_pylist() if reason in (None, row["reason"]))


def dead_letter_record(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "received_at": row["received_at"].isoformat(),
        **{name: row[name] for name in ("stream", "offset", "topic", "reason")},
        "raw": None if row["raw"] is None else row["raw"].hex(),
    }


def _format_dead_letter(row: dict[str, Any]) -> str:
    raw = row["raw"] or b""
    more = f" … {len(raw)} bytes" if len(raw) > _SHOWN_BYTES else ""
    received = row["received_at"].strftime("%Y-%m-%d %H:%M:%SZ")
    shown = f"{raw[:_SHOWN_BYTES].hex(' ')}{more}"
    return f"{received}  {row['reason']:<16} {row['topic']}  {shown}".rstrip()


app = typer.Typer(no_args_is_help=True, help="Process messages into tables on Spark.")
app.command()(status)
app.command("dead-letters")(dead_letters)
app.command("letters", hidden=True)(dead_letters)

COMPACT_SECONDS: Final = 3600.0
Shards = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        metavar="N",
        help="The shards of a new bronze table (16): at least the cores that will work on it.",
    ),
]


@app.command()
def run(
    flow: FlowName = "hives",
    url: Url = DEFAULT_URL,
    management_url: ManagementApi = None,
    every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="The interval of batches.")
    ] = 0.25,
    max_batch: LargestBatch = LARGEST_BATCH,
    max_batch_bytes: LargestBatchBytes = None,
    loss: FailOnLoss = True,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    shards: Shards = None,
    compact_every: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="The interval of compactions; 0 for never."),
    ] = COMPACT_SECONDS,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve metrics for Prometheus on loopback.")
    ] = None,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Apply messages as they arrive, until SIGTERM. Prints a line when it is ready."""
    from penstock_spark.compaction import compaction_task
    from penstock_spark.flow import run_periodic_tasks
    from penstock_spark.memory import memory_task
    from penstock_spark.runner import FlowRunner, SourceOptions

    source = SourceOptions(
        url,
        management_url=management_url,
        max_offsets=max_batch,
        max_bytes=parse_batch_bytes(max_batch_bytes),
        fail_on_loss=loss,
        every=every,
        shards=shards,
    )
    with open_flow(
        *(flow, url, database, cache, master, remote, spark, data, file, pairs, lake, lake_options)
    ) as found:
        if metrics is not None:
            _serve(found.directory, url, metrics)
        runner = FlowRunner(found.spark, found.flow, found.directory, source, owns_session=True)
        ready = f"penstock pipeline ready: {found.flow.name} {url}"

        periodic_tasks = [*found.flow.periodic_tasks, memory_task()]
        if compact_every:
            periodic_tasks.append(compaction_task(found.directory, compact_every))

        def work(stop: threading.Event) -> None:
            with run_periodic_tasks(found.spark, found.flow.name, periodic_tasks):
                runner.run(stop, ready=lambda: typer.echo(ready))

        asyncio.run(_until_stopped(work, with_stdin))


@app.command()
def once(
    flow: FlowName = "hives",
    url: Url = DEFAULT_URL,
    management_url: ManagementApi = None,
    max_batch: LargestBatch = LARGEST_BATCH,
    max_batch_bytes: LargestBatchBytes = None,
    loss: FailOnLoss = True,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    shards: Shards = None,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Apply the messages that the streams have now, and end."""
    from penstock_spark.progress import FlowProgress
    from penstock_spark.runner import FlowRunner, SourceOptions

    source = SourceOptions(
        url,
        management_url=management_url,
        max_offsets=max_batch,
        max_bytes=parse_batch_bytes(max_batch_bytes),
        fail_on_loss=loss,
        shards=shards,
    )
    with open_flow(
        *(flow, url, database, cache, master, remote, spark, data, file, pairs, lake, lake_options)
    ) as found:
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
            metavar="TIME",
            help="Messages since this time, or somewhat earlier; by default all.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            parser=parse_time,
            metavar="TIME",
            help="Omit later messages, and do not adopt the result but keep it for inspection.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    max_batch: LargestBatch = 1_000_000,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    database: Database = None,
    cache: Cache = None,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Rebuild a flow's tables from bronze, while it runs."""
    from penstock_spark.progress import FlowProgress
    from penstock_spark.replay import FlowReplay

    with open_flow(
        *(flow, url, database, cache, master, remote, spark, data, file, pairs, lake, lake_options)
    ) as found:
        done = FlowReplay(found.spark, found.flow, found.directory, max_batch).run(since, until)
        progress = FlowProgress(found.directory.progress, found.flow.name)
    where = "is current" if done.adopted else "is not adopted"
    typer.echo(
        f"{done.rows:,} messages replayed, batches {done.first} to {done.last}; "
        f"generation {done.generation} {where}"
    )
    for each in progress.damaged_files():
        typer.echo(f"not replayed: {each['rows']:,} messages: {each['reason']}", err=True)


@app.command()
def compact(
    flow: FlowName = "hives",
    first: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day.")
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="The last day.")
    ] = None,
    lake: LakeUrl = None,
    lake_options: LakeOptions = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Merge the small files of batches into large ones, while the flow runs."""
    from penstock_spark.compaction import compact as merge
    from penstock_spark.directory import FlowDirectory, FlowLock

    home = prepare(file, pairs, data).settings.data
    directory = FlowDirectory(home, flow, lake_location(lake, lake_options))
    days = (first.date() if first else date.min, last.date() if last else date.max)
    with directory.locks.hold(FlowLock.FILES, wait=False):
        done = merge(directory.lake, days if first or last else None)
    for each in done:
        typer.echo(f"{each.table}: {each.rows:,} rows, {each.before} files → {each.after}")
    if not done:
        typer.echo("nothing to compact")


def _serve(directory: FlowDirectory, broker: str, port: int) -> None:
    from penstock_spark.status import flow_metrics

    serve_metrics(port, flow_metrics(directory, broker))


async def _until_stopped(work: Callable[[threading.Event], None], with_stdin: bool) -> None:
    """Run `work` in a thread; its event is set when the command is to stop."""
    stop_work = threading.Event()
    async with stop_event(with_stdin) as stop:
        working = asyncio.create_task(asyncio.to_thread(work, stop_work))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_work.set()
            stopping.cancel()
        await working
