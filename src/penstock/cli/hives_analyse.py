"""`penstock hives analyse`: what the nights find out, at once; `pipeline run` does it once a day.

Thin: `penstock.hives.analytics` does it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_options import Database, Master, SparkSettings, spark_settings


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be a day such as 2026-01-31") from error


def analyse(
    day: Annotated[
        date | None,
        typer.Option(
            parser=_day,
            metavar="DAY",
            show_default=False,
            help="The day to end with. [default: the last that is over everywhere]",
        ),
    ] = None,
    database: Database = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Find out what is popular, what compares how, what a deal has brought, and what stands out."""
    from penstock import store
    from penstock.hives.analytics.nightly import analyse as make
    from penstock.hives.analytics.nightly import settled_day
    from penstock.pipeline.opening import engine_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    wanted = day or settled_day(now)
    with (
        store.open(database, home) as opened,
        engine_session("analytics", master, None, spark_settings(spark)) as session,
    ):
        written = make(session, opened, wanted, now, lake=home / "lake")
    typer.echo(f"{wanted}:")
    for table, rows in written.items():
        typer.echo(f"  {table:<20} {rows:,}")
