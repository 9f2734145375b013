"""`penstock hives forecast`: every hive's day, at once; `run` does it every night.

Thin: `penstock_hives.forecast.schedule` does it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.core.errors import NotFound
from penstock_spark.commands.options import Master, SparkSettings, spark_settings

if TYPE_CHECKING:
    from rich.table import Table

    from penstock_hives.forecast.backtest import Backtest
    from penstock_hives.forecast.venues import Venue


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
    import penstock_store
    from penstock_hives.forecast.schedule import due_hives
    from penstock_hives.forecast.schedule import make_forecasts as make
    from penstock_spark.session import flow_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    with penstock_store.open(database, home) as opened:
        wanted = due_hives(opened, now, anyway=not only_due)
        if not wanted:
            typer.echo("nothing is due" if only_due else "no hive has counted anybody lately")
            return
        with flow_session("forecast", master, None, spark_settings(spark)) as session:
            for day, hives in wanted.items():
                done = make(session, opened, day, hives, now)
                typer.echo(
                    f"{done.day}: {done.hours:,} hours of {done.hives:,} hives; the model was "
                    f"{'accepted' if done.verdict.accepted else 'refused'}: {done.verdict.reason}"
                )


# `penstock hives backtest`: how good forecasts would have been, and whether to publish them.
#
# Thin: `penstock_hives.forecast` does it. The hives' own history is taken from the database, or
# counts of others from a file.

DAY: Final = ["%Y-%m-%d"]
FILES: Final = "Counts in a file"


def backtest(
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Hourly counts, timestamp,NAME,NAME,… in a .csv; the hives' own unless said.",
        ),
    ] = None,
    first: Annotated[
        datetime | None,
        typer.Option("--from", formats=DAY, help="Days from this one; the last 56 unless said."),
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=DAY, help="To this one.")] = None,
    refit: Annotated[
        int, typer.Option(min=1, metavar="DAYS", help="A new model every so many days.")
    ] = 30,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of what is left to chance.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it, as .svg, .png or .pdf.")
    ] = None,
    venue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose week to draw; one in the middle.")
    ] = None,
    country: Annotated[
        str,
        typer.Option(metavar="CC", help="Whose holidays, as NZ.", rich_help_panel=FILES),
    ] = "",
    region: Annotated[
        str, typer.Option(metavar="CODE", help="Those of a part, as AUK.", rich_help_panel=FILES)
    ] = "",
    database: Database = None,
    data: Data = None,
    config: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Forecast days that have passed as if they had not, and score it beside simpler ways.

    `penstock hives backtest --plot forecast.svg`

    `penstock hives backtest counts.csv --country NZ --region AUK --from 2024-07-01`
    """
    from rich.console import Console

    from penstock_hives.forecast.backtest import BacktestSpan
    from penstock_hives.forecast.backtest import run_backtest as run
    from penstock_hives.forecast.public_holidays import PublicHolidays
    from penstock_hives.forecast.venues import read_count_file

    if file is not None:
        venues = read_count_file(file, PublicHolidays(country, region))
    else:
        venues = _read_venues(database, prepare(config, pairs, data).settings.data)
    if venue is not None and venue not in {each.name for each in venues}:
        raise NotFound(f"--venue {venue}: there is {', '.join(each.name for each in venues)}")
    end = last.date() + timedelta(days=1) if last else max(each.grid.end for each in venues)
    start = first.date() if first else _recent(end)
    console = Console()
    with console.status("fitting") as shown:
        found = run(venues, BacktestSpan(start, end, refit), seed=seed, told=shown.update)
    console.print(backtest_table(found))
    would = "[green]would be[/]" if found.verdict.accepted else "[yellow]would not be[/]"
    told = f"The model {would} published: {found.verdict.reason}"
    console.print(told, highlight=False, soft_wrap=True)
    if plot is not None:
        from penstock_hives.forecast.plot import draw_backtest

        draw_backtest(found, plot, venue)
        console.print(f"drawn to {plot}")


def _read_venues(database: str | None, data: Path) -> list[Venue]:
    import penstock_store
    from penstock_hives.forecast.venues import read_venues

    with penstock_store.open(database, data) as opened:
        found = read_venues(opened)
    if not found:
        raise NotFound("no hive has a history yet; name a file of counts")
    return found


def _recent(end: date) -> date:
    return end - timedelta(days=56)


def backtest_table(found: Backtest) -> Table:
    from rich import box
    from rich.table import Table

    span = f"{found.span.first} to {found.span.end - timedelta(days=1)}"
    venues = len(found.said)
    told = f"One day ahead, {span}, {venues} venue{'s' if venues != 1 else ''}"
    shown = Table(box=box.SIMPLE_HEAD, title=told, title_justify="left", title_style="bold")
    shown.add_column("method")
    for name in ("WAPE", "holidays", "peak ±1 h", "top 3", "in window", "under p90"):
        shown.add_column(name, justify="right")
    for method in found.tallies:
        total = found.total(method)
        figures = (
            total.wape,
            total.holiday_wape,
            total.peak,
            total.top3,
            total.in_window,
            total.coverage,
        )
        shown.add_row(method, *("–" if each != each else f"{each:.3f}" for each in figures))
    return shown
