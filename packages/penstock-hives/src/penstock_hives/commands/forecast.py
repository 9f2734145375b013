"""`penstock hives forecast` and `penstock hives backtest`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.core.errors import NotFound
from penstock_spark.commands.options import Master, SparkSettings, spark_settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock_hives.forecast.backtest import Backtest
    from penstock_hives.forecast.venues import Venue


def forecast(
    only_due: Annotated[
        bool, typer.Option("--due", help="Only hives without a forecast of their day.")
    ] = False,
    database: Database = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Forecast the day of every hive by hour, and write it to the database.

    `penstock pipeline run` does this every night.
    """
    import penstock_store
    from penstock_hives.forecast.schedule import due_hives
    from penstock_hives.forecast.schedule import make_forecasts as make
    from penstock_spark.session import flow_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    with penstock_store.open(database, home) as opened:
        wanted = due_hives(opened, now, anyway=not only_due)
        if not wanted:
            typer.echo("no hive is due" if only_due else "no hive has recent data")
            return
        with flow_session("forecast", master, None, spark_settings(spark)) as session:
            for day, hives in wanted.items():
                done = make(session, opened, day, hives, now)
                typer.echo(
                    f"{done.day}: {done.hours:,} hours of {done.hives:,} hives; model "
                    f"{'accepted' if done.verdict.accepted else 'rejected'}: {done.verdict.reason}"
                )


DAY: Final = ["%Y-%m-%d"]
FILES: Final = "Counts in a file"


def backtest(
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Hourly counts in a .csv: timestamp,NAME,NAME,… [default: the database]",
        ),
    ] = None,
    first: Annotated[
        datetime | None,
        typer.Option("--from", formats=DAY, help="First day. [default: 56 days before the end]"),
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=DAY, help="Last day.")] = None,
    refit: Annotated[
        int, typer.Option(min=1, metavar="DAYS", help="Fit a new model every DAYS days.")
    ] = 30,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a plot: .svg, .png or .pdf.")
    ] = None,
    venue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The venue to plot. [default: the median one]"),
    ] = None,
    country: Annotated[
        str,
        typer.Option(
            metavar="CC", help="Country of public holidays, such as NZ.", rich_help_panel=FILES
        ),
    ] = "",
    region: Annotated[
        str,
        typer.Option(
            metavar="CODE", help="Region of public holidays, such as AUK.", rich_help_panel=FILES
        ),
    ] = "",
    database: Database = None,
    data: Data = None,
    config: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Forecast past days from the data before them, and compare with simple methods.

    `penstock hives backtest --plot forecast.svg`

    `penstock hives backtest counts.csv --country NZ --region AUK --from 2024-07-01`
    """
    from rich.console import Console

    from penstock_hives.forecast.backtest import BacktestSpan
    from penstock_hives.forecast.backtest import run_backtest as run
    from penstock_hives.forecast.grid import PublicHolidays
    from penstock_hives.forecast.venues import read_count_file

    if file is not None:
        venues = read_count_file(file, PublicHolidays(country, region))
    else:
        venues = _read_venues(database, prepare(config, pairs, data).settings.data)
    if venue is not None and venue not in {each.name for each in venues}:
        raise NotFound(
            f"--venue {venue}: no such venue; there are {', '.join(each.name for each in venues)}"
        )
    end = last.date() + timedelta(days=1) if last else max(each.grid.end for each in venues)
    start = first.date() if first else end - timedelta(days=56)
    console = Console()
    with console.status("fitting") as shown:
        result = run(venues, BacktestSpan(start, end, refit), seed=seed, progress=shown.update)
    _print_backtest(console, result)
    if plot is not None:
        from penstock_hives.forecast.plot import draw_backtest

        draw_backtest(result, plot, venue)
        console.print(f"plot written to {plot}")


def _print_backtest(console: Console, result: Backtest) -> None:
    console.print(backtest_table(result))
    would = "[green]would be[/]" if result.verdict.accepted else "[yellow]would not be[/]"
    verdict = f"The model {would} published: {result.verdict.reason}"
    console.print(verdict, highlight=False, soft_wrap=True)


def _read_venues(database: str | None, data: Path) -> list[Venue]:
    import penstock_store
    from penstock_hives.forecast.venues import read_venues

    with penstock_store.open(database, data) as opened:
        venues = read_venues(opened)
    if not venues:
        raise NotFound("no hive has a history yet; name a file of counts")
    return venues


def backtest_table(result: Backtest) -> Table:
    from rich import box
    from rich.table import Table

    span = f"{result.span.first} to {result.span.end - timedelta(days=1)}"
    venues = len(result.forecasts)
    title = f"One day ahead, {span}, {venues} venue{'s' if venues != 1 else ''}"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    shown.add_column("method")
    for name in ("WAPE", "holidays", "peak ±1 h", "top 3", "in window", "under p90"):
        shown.add_column(name, justify="right")
    for method in result.tallies:
        total = result.total(method)
        figures = (
            *(total.wape, total.holiday_wape, total.peak),
            *(total.top3, total.in_window, total.coverage),
        )
        shown.add_row(method, *("–" if each != each else f"{each:.3f}" for each in figures))
    return shown
