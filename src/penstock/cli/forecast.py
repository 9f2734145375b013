"""`penstock pipeline forecast`: every hive's day, at once; `run` does it every night.

Thin: `penstock.hives.forecasting` does it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_options import Database, Master, SparkSettings, spark_settings


def forecast(
    only_due: Annotated[
        bool, typer.Option("--due", help="Only hives that lack one of their day, as `run` does.")
    ] = False,
    database: Database = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Forecast the day of every hive, by the hour, and publish it to the database."""
    from penstock import store
    from penstock.hives.forecasting import due
    from penstock.hives.forecasting import forecast as make
    from penstock.pipeline.opening import engine_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    with store.open(database, home) as opened:
        wanted = due(opened, now, anyway=not only_due)
        if not wanted:
            typer.echo("nothing is due" if only_due else "no hive has counted anybody lately")
            return
        with engine_session("forecast", master, None, spark_settings(spark)) as session:
            for day, hives in wanted.items():
                done = make(session, opened, day, hives, now)
                typer.echo(
                    f"{done.day}: {done.hours:,} hours of {done.hives:,} hives; the model was "
                    f"{'accepted' if done.verdict.accepted else 'refused'}: {done.verdict.reason}"
                )
