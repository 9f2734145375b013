"""`penstock pipeline backtest`: how good forecasts would have been, and whether to publish them.

Thin: `penstock.hives.forecast` does it. The hives' own history is taken from the database, or
counts of others from a file.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_options import Database
from penstock.core.errors import NotFound

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.hives.forecast.backtest import Backtest
    from penstock.hives.forecast.venues import Venue

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

    `penstock pipeline backtest --plot forecast.svg`

    `penstock pipeline backtest counts.csv --country NZ --region AUK --from 2024-07-01`
    """
    from rich.console import Console

    from penstock.hives.forecast.backtest import Span
    from penstock.hives.forecast.backtest import backtest as run
    from penstock.hives.forecast.counts import read
    from penstock.hives.forecast.public_days import PublicDays

    if file is not None:
        venues = read(file, PublicDays(country, region))
    else:
        venues = _recorded(database, prepare(config, pairs, data).settings.data)
    if venue is not None and venue not in {each.name for each in venues}:
        raise NotFound(f"--venue {venue}: there is {', '.join(each.name for each in venues)}")
    end = last.date() + timedelta(days=1) if last else max(each.grid.end for each in venues)
    start = first.date() if first else _recent(end)
    console = Console()
    with console.status("fitting") as shown:
        found = run(venues, Span(start, end, refit), seed=seed, told=shown.update)
    console.print(table(found))
    would = "[green]would be[/]" if found.verdict.accepted else "[yellow]would not be[/]"
    told = f"The model {would} published: {found.verdict.reason}"
    console.print(told, highlight=False, soft_wrap=True)
    if plot is not None:
        from penstock.hives.forecast.plot import draw

        draw(found, plot, venue)
        console.print(f"drawn to {plot}")


def _recorded(database: str | None, data: Path) -> list[Venue]:
    from penstock import store
    from penstock.hives.forecast.recorded import venues

    with store.open(database, data) as opened:
        found = venues(opened)
    if not found:
        raise NotFound("no hive has a history yet; name a file of counts")
    return found


def _recent(end: date) -> date:
    return end - timedelta(days=56)


def table(found: Backtest) -> Table:
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
