"""Options of `penstock pipeline`, and how a flow is opened with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import prepare
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError
from penstock.core.java import check_java
from penstock.core.resources import limit_arenas
from penstock.core.units import parse_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock_spark.directory import FlowDirectory
    from penstock_spark.flow import FlowFactory, PipelineFlow
    from penstock_spark.lake import StorageLocation

#: Entry points that open flows: `name = "package.module:function"`.
FLOWS: Final = "penstock.flows"
SPARK: Final = "Spark"

FlowName = Annotated[
    str,
    typer.Option("--flow", metavar="NAME", help="The flow, or module:function that opens one."),
]
Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_SPARK_MASTER",
        help="Where Spark runs: local[*], spark://host:7077.",
        rich_help_panel=SPARK,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A Spark Connect server, sc://host:15002, that sees the data directory.",
        rich_help_panel=SPARK,
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="KEY=VALUE", help="A setting of Spark.", rich_help_panel=SPARK),
]
LargestBatch = Annotated[
    int,
    typer.Option(
        "--max-batch", min=1, metavar="N", help="The largest number of messages in a batch."
    ),
]
LargestBatchBytes = Annotated[
    str | None,
    typer.Option(
        "--max-batch-bytes",
        metavar="SIZE",
        help="The largest size of a batch, such as 64MiB; by default by the machine's memory.",
    ),
]
LakeUrl = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="URL",
        envvar="PENSTOCK_LAKE",
        help="The lake: a directory, s3://, az:// or gs://; by default in the data directory.",
    ),
]
LakeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--lake-option",
        metavar="KEY=VALUE",
        help="An option of the object store, such as aws_endpoint_url.",
    ),
]
ManagementApi = Annotated[
    str | None,
    typer.Option(
        "--management-url",
        metavar="URL",
        help="The broker's management API; by default where the broker says, or port 15672.",
    ),
]
FailOnLoss = Annotated[
    bool,
    typer.Option(
        "--fail-on-loss/--accept-loss", help="Fail if messages were removed before they were read."
    ),
]


def parse_time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be a time such as 2026-01-31T12:00") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_batch_bytes(text: str | None) -> int | None:
    try:
        found = None if text is None else parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"--max-batch-bytes: {error}") from error
    if found == 0:
        raise typer.BadParameter("--max-batch-bytes: should be 1 or more")
    return found


@dataclass(frozen=True, slots=True)
class OpenedFlow:
    flow: PipelineFlow
    directory: FlowDirectory
    spark: SparkSession


@contextmanager
def open_flow(
    flow: str,
    url: str,
    database: str | None,
    cache: str | None,
    master: str,
    remote: str | None,
    settings: list[str] | None,
    data: Path | None,
    file: Path | None,
    pairs: list[str] | None,
    lake: str | None = None,
    lake_options: list[str] | None = None,
) -> Iterator[OpenedFlow]:
    from penstock_spark.connector.source import defer_pandas
    from penstock_spark.directory import FlowDirectory
    from penstock_spark.flow import FlowContext
    from penstock_spark.session import flow_session, skip_pandas_check

    defer_pandas()
    skip_pandas_check()
    limit_arenas()
    if remote is None:
        check_java()  # before anything else is started
    home = prepare(file, pairs, data).settings.data
    private_directory(home, traversable=True)
    for folder in ("lake", "checkpoints", "progress"):
        private_directory(home / folder)
    opener = _opener(flow)
    location = lake_location(lake, lake_options)
    with (
        opener(FlowContext(home, url, database, cache, location)) as opened,
        flow_session(opened.name, master, remote, spark_settings(settings)) as spark,
    ):
        yield OpenedFlow(opened, FlowDirectory(home.resolve(), opened.name, location), spark)


def lake_location(lake: str | None, options: list[str] | None) -> StorageLocation | None:
    from penstock_spark.lake import StorageLocation

    if lake is None:
        if options:
            raise typer.BadParameter("--lake-option needs --lake")
        return None
    return StorageLocation.parse(lake, _pairs("--lake-option", options))


def _opener(flow: str) -> FlowFactory:
    installed = {entry.name: entry.value for entry in entry_points(group=FLOWS)}
    module, colon, function = installed.get(flow, flow).partition(":")
    if not colon:
        known = ", ".join(sorted(installed)) or "none"
        raise ConfigurationError(
            f"--flow {flow}: not installed (installed: {known}); install its package, or give "
            "module:function"
        )
    if flow not in installed:
        sys.path.insert(0, "")  # a module of the current directory
    try:
        found: FlowFactory = getattr(import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigurationError(f"--flow {flow}: cannot be opened: {error}") from error
    return found


def spark_settings(settings: list[str] | None) -> dict[str, str]:
    return _pairs("--spark", settings)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    wrong = [pair for pair in given or [] if "=" not in pair]
    if wrong:
        raise typer.BadParameter(f"{option} {wrong[0]!r} should be KEY=VALUE")
    return dict(pair.split("=", 1) for pair in given or [])
