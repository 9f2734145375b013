"""`python -m benchmarks.forecast`: both open data sets, the table of each, and the page's plot.

The same as two calls of `penstock hives backtest`. It fits a dozen models and takes some
minutes; figures depend on the data and the seed, not on the machine.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Final

from rich.console import Console

from penstock_hives.commands.forecast import backtest_table
from penstock_hives.forecast.backtest import BacktestSpan, run_backtest
from penstock_hives.forecast.grid import PublicHolidays
from penstock_hives.forecast.plot import draw_backtest
from penstock_hives.forecast.venues import read_count_file

HERE: Final = Path(__file__).parents[2]
COUNTS: Final = HERE / "tests" / "data" / "people-counts"
PLOT: Final = HERE / "docs" / "forecasts.svg"
SETS: Final = (
    (
        "auckland_hourly_2023_2024.csv",
        PublicHolidays("NZ", "AUK"),
        BacktestSpan(date(2024, 7, 1), date(2025, 1, 1), 31),
        PLOT,
    ),
    (
        "calit2.data",
        PublicHolidays("US", "CA"),
        BacktestSpan(date(2005, 10, 9), date(2005, 11, 6), 28),
        None,
    ),
)


def main() -> None:
    console = Console()
    for name, public, span, plot in SETS:
        started = perf_counter()
        found = run_backtest(read_count_file(COUNTS / name, public), span, progress=console.print)
        console.print(backtest_table(found))
        console.print(f"{name}: {found.verdict.reason}; {perf_counter() - started:.0f} s")
        if plot is not None:
            draw_backtest(found, plot)


if __name__ == "__main__":
    main()
