"""What the commands of `penstock pipeline` share: flags, and how a flow is opened with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.fabric import hush_libraries
from penstock.cli.options import prepare
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError
from penstock.core.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.flow import Flow, OpenFlow
    from penstock.pipeline.place import Place

#: Name → where it is opened. Others are named by that: `package.module:function`.
FLOWS: Final = {
    "hives": "penstock.hives.flow:open_flow",
    "pump": "penstock.pump.keeping:open_flow",
}
PARTS: Final = "Other parts"
SPARK: Final = "Spark"

FlowName = Annotated[
    str,
    typer.Option("--flow", metavar="NAME", help="Which flow; or module:function that opens one."),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_DATABASE",
        help="A PostgreSQL instead of the embedded one.",
        rich_help_panel=PARTS,
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_CACHE",
        help="A memcached instead of memory.",
        rich_help_panel=PARTS,
    ),
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
    typer.Option(
        "--spark", metavar="KEY=VALUE", help="Any setting of Spark's.", rich_help_panel=SPARK
    ),
]
LargestBatch = Annotated[
    int, typer.Option("--max-batch", min=1, metavar="N", help="The most messages in a batch.")
]
Loss = Annotated[
    bool,
    typer.Option(
        "--fail-on-loss/--accept-loss", help="What to do about messages gone before they were read."
    ),
]


def moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be a time such as 2026-01-31T12:00") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Opened:
    flow: Flow
    place: Place
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
) -> Iterator[Opened]:
    from penstock.pipeline.flow import Surroundings
    from penstock.pipeline.opening import engine_session
    from penstock.pipeline.place import Place

    if remote is None:
        check_java()  # before anything else is started
    home = prepare(file, pairs, data).settings.data
    hush_libraries()
    private_directory(home, traversable=True)
    for folder in ("lake", "checkpoints", "progress"):
        private_directory(home / folder)
    opener = _opener(flow)
    with (
        opener(Surroundings(home, url, database, cache)) as opened,
        engine_session(opened.name, master, remote, spark_settings(settings)) as spark,
    ):
        yield Opened(opened, Place(home.resolve(), opened.name), spark)


def _opener(flow: str) -> OpenFlow:
    place = FLOWS.get(flow, flow)
    module, colon, function = place.partition(":")
    if not colon:
        known = ", ".join(FLOWS)
        raise ConfigurationError(f"--flow {flow}: there is {known}; or say module:function")
    try:
        found: OpenFlow = getattr(import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigurationError(f"--flow {flow}: cannot be opened: {error}") from error
    return found


def spark_settings(settings: list[str] | None) -> dict[str, str]:
    wrong = [pair for pair in settings or [] if "=" not in pair]
    if wrong:
        raise typer.BadParameter(f"--spark {wrong[0]!r} should be KEY=VALUE")
    return dict(pair.split("=", 1) for pair in settings or [])
