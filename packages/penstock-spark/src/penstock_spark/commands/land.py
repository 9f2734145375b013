"""`penstock lake land`: the messages of streams, or of an MQTT topic filter, in Delta tables."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.client_options import DEFAULT_URL, Url
from penstock.cli.options import StopWithStdin
from penstock.cli.shutdown import stop_event
from penstock.cli.table import new_table
from penstock.core.config import LogSettings
from penstock.core.errors import ConfigurationError
from penstock.core.logs import configure_logs
from penstock.core.redaction import redact
from penstock_spark.commands.options import (
    FailOnLoss,
    ManagementApi,
    Master,
    Remote,
    SparkSettings,
    spark_settings,
)

if TYPE_CHECKING:
    from rich.table import Table

    from penstock_spark.landing.engines import LandingEngine
    from penstock_spark.landing.lander import TableLander
    from penstock_spark.landing.runner import LandingRunner
    from penstock_spark.landing.settings import LandingSettings
    from penstock_spark.landing.source import StreamSource

FORMAT: Final = "Format"
TABLE: Final = "Table"

Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="An option of the object store, such as aws_region=eu-central-1.",
        rich_help_panel=TABLE,
    ),
]


class EngineName(StrEnum):
    SPARK = "spark"
    LOCAL = "local"


Streams = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A stream, or a pattern such as orders-*; repeatable."),
]
MqttFilter = Annotated[
    str | None,
    typer.Option(
        metavar="FILTER",
        help="An MQTT topic filter; its stream is declared and bound if need be.",
    ),
]
TableUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The table: a path, s3://, az:// or gs://."),
]
BodyFormatName = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="json|csv|avro|protobuf|text|bytes",
        help="The format of bodies.",
        rich_help_panel=FORMAT,
    ),
]
BodySchema = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA|FILE",
        help="'id BIGINT, at TIMESTAMP', or a file: such text, the JSON of a schema, an Avro "
        "schema, a Protobuf descriptor set. [default: inferred from a sample]",
        rich_help_panel=FORMAT,
    ),
]
ProtobufMessage = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The Protobuf message.", rich_help_panel=FORMAT),
]
CsvHeader = Annotated[
    bool | None,
    typer.Option(
        "--csv-header",
        help="Each message begins with the names of its columns.",
        rich_help_panel=FORMAT,
    ),
]
CsvDelimiter = Annotated[str | None, typer.Option(metavar="CHARACTER", rich_help_panel=FORMAT)]
SampleSize = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Messages to infer a schema from.", rich_help_panel=FORMAT
    ),
]
ColumnSources = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SOURCE",
        help="A column from header:NAME, key, key:N, topic, topic:N, exchange, content_type or "
        "message_id; repeatable.",
        rich_help_panel=TABLE,
    ),
]
PartitionColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="day|COLUMN",
        help="Partition by the day of arrival, or a column; repeatable.",
        rich_help_panel=TABLE,
    ),
]
NewColumnsRule = Annotated[
    str,
    typer.Option(
        metavar="add|ignore|reject",
        help="What a field without a column does: add the column, nothing, or make the message "
        "a dead letter.",
        rich_help_panel=TABLE,
    ),
]
DeadLettersUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The table of messages that do not fit. [default: TO_dead_letters]",
        rich_help_panel=TABLE,
    ),
]
StartPosition = Annotated[
    str,
    typer.Option(
        metavar="POSITION",
        help="Where a stream begins that the table does not know: earliest, latest, a time, or "
        "a JSON object of offsets.",
    ),
]
TablesFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file with many tables.")
]
Once = Annotated[bool, typer.Option("--once", help="Land what the streams have now, and end.")]
Interval = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="The interval of batches.")
]
MaxBatch = Annotated[
    int, typer.Option(min=1, metavar="N", help="The largest number of messages in a batch.")
]
Engine = Annotated[EngineName, typer.Option(help="Spark, or this process alone, without Java.")]


def land(
    url: Url = DEFAULT_URL,
    stream: Streams = None,
    mqtt: MqttFilter = None,
    to: TableUrl = None,
    form: BodyFormatName = "json",
    schema: BodySchema = None,
    message: ProtobufMessage = None,
    csv_header: CsvHeader = None,
    csv_delimiter: CsvDelimiter = None,
    sample: SampleSize = 1000,
    column: ColumnSources = None,
    partition: PartitionColumns = None,
    new_columns: NewColumnsRule = "add",
    dead_letters: DeadLettersUrl = None,
    storage: Storage = None,
    start: StartPosition = "earliest",
    config: TablesFile = None,
    once: Once = False,
    every: Interval = 10.0,
    max_batch: MaxBatch = 200_000,
    loss: FailOnLoss = True,
    engine: Engine = EngineName.SPARK,
    master: Master = "local[*]",
    remote: Remote = None,
    spark: SparkSettings = None,
    management_url: ManagementApi = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Write the messages of streams into a Delta table, exactly once."""
    options: dict[str, Any] = {
        "to": to,
        "stream": stream,
        "mqtt": mqtt,
        "format": form,
        "schema": schema,
        "message": message,
        "csv_header": csv_header,
        "csv_delimiter": csv_delimiter,
        "sample": sample,
        "columns": parse_pairs("--column", column),
        "partition": partition,
        "new_columns": new_columns,
        "dead_letters": dead_letters,
        "storage": parse_pairs("--storage", storage),
        "start": start,
    }
    given = {name: value for name, value in options.items() if value}
    url, tables = _tables(config, url, given)
    opened = _open_landers(
        tables, url, engine, management_url, max_batch, loss, master, remote, spark_settings(spark)
    )
    live = sys.stdout.isatty()
    configure_logs(LogSettings(level="warning" if live else "info"))
    with opened as landers:
        from penstock_spark.landing.runner import LandingRunner

        ready = None if once else f"penstock lake ready: {redact(url)}"
        _run(LandingRunner(landers, every, once), live, ready, with_stdin)


def _run(runner: LandingRunner, live: bool, ready: str | None, with_stdin: bool) -> None:
    """Until it is complete or stopped; the totals are printed at the end."""
    with _progress(runner) if live else ExitStack():
        if ready is not None:
            typer.echo(ready, err=live)
        asyncio.run(_until_stopped(runner, with_stdin))
    for lander in runner.landers:
        totals = lander.totals
        typer.echo(
            f"{lander.table.location}: {totals.rows:,} rows and {totals.dead:,} dead letters "
            f"in {totals.batches} batches"
        )


#: Options of a table that have a value unless given.
_DEFAULTS: Final = {
    "format": "json",
    "sample": 1000,
    "new_columns": "add",
    "start": "earliest",
}


def _tables(
    config: Path | None, url: str, given: dict[str, Any]
) -> tuple[str, Sequence[LandingSettings]]:
    """The broker and the tables, of the file or of the options; both at once are refused."""
    from penstock_spark.landing.settings import landing_settings, load_configuration

    if config is None:
        if "to" not in given:
            raise typer.BadParameter("--to is missing: the URL of the table; or use --config FILE")
        return url, [landing_settings(given, "land")]
    for name, value in given.items():
        if _DEFAULTS.get(name) != value:
            option = name.removesuffix("s") if name == "columns" else name.replace("_", "-")
            raise typer.BadParameter(f"--{option}: with --config it is set in the file")
    configured, tables = load_configuration(config)
    return (configured if configured is not None and url == DEFAULT_URL else url), tables


@contextmanager
def _open_landers(
    tables: Sequence[LandingSettings],
    url: str,
    engine: EngineName,
    management_url: str | None,
    max_batch: int,
    loss: bool,
    master: str,
    remote: str | None,
    settings: dict[str, str],
) -> Iterator[list[TableLander]]:
    from penstock_spark.landing.engines import LocalEngine, SparkEngine, spark_session
    from penstock_spark.landing.lander import TableLander
    from penstock_spark.landing.source import StreamSource

    make: Callable[[StreamSource], LandingEngine]

    def local(source: StreamSource) -> LandingEngine:
        return LocalEngine(source.endpoint, loss)

    landers = [
        TableLander(
            each,
            StreamSource.of(url, each, management_url),
            lambda source: make(source),
            max_batch=max_batch,
            fail_on_loss=loss,
        )
        for each in tables
    ]
    _check_targets(landers)
    if engine is EngineName.LOCAL:
        make = local
        yield landers
        return
    with spark_session(master, remote, settings) as session:
        shared = SparkEngine(session, url, management_url, fail_on_loss=loss)

        def on_spark(source: StreamSource) -> LandingEngine:
            return shared

        make = on_spark
        yield landers


def _check_targets(landers: Sequence[TableLander]) -> None:
    seen: set[str] = set()
    for lander in landers:
        for table in (lander.table, lander.dead_letters):
            if (url := table.location.url) in seen:
                raise ConfigurationError(f"{url} is the target of two tables")
            seen.add(url)


def parse_pairs(option: str, given: list[str] | None) -> dict[str, str]:
    found = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{option} {pair!r} should be NAME=VALUE")
        found[name] = value
    return found


async def _until_stopped(runner: LandingRunner, with_stdin: bool) -> None:
    async with stop_event(with_stdin) as stop:
        working = asyncio.create_task(asyncio.to_thread(runner.run))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            runner.stop.set()
            stopping.cancel()
        await working


@contextmanager
def _progress(runner: LandingRunner) -> Iterator[None]:
    """A table of the tables, in a terminal."""
    from rich.live import Live

    with Live(_render(runner.landers), refresh_per_second=4) as live:
        runner.on_change = lambda: live.update(_render(runner.landers))
        yield
        live.update(_render(runner.landers))


def _render(landers: Sequence[TableLander]) -> Table:
    from rich.text import Text

    table = new_table(
        "table", ">rows", ">dead letters", ">batches", ">rows/s", ">lag", "state", no_wrap=True
    )
    for lander in landers:
        totals = lander.totals
        rate = totals.rows / totals.seconds if totals.seconds else 0.0
        lag = "?" if totals.lag is None else f"{totals.lag:,}"
        state: Any = Text(totals.reason, style="yellow") if totals.reason else "landing"
        table.add_row(
            Text(lander.name),
            f"{totals.rows:,}",
            f"{totals.dead:,}",
            f"{totals.batches:,}",
            f"{rate:,.0f}",
            lag,
            state,
        )
    return table
