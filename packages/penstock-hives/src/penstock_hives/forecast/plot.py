"""The plot of a backtest: a week of one venue, forecast and actual, and the WAPE of all venues.

By default the venue and its week are those of median accuracy. The file name determines the format.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock_hives.forecast.accuracy import peak_window
from penstock_hives.forecast.backtest import GLOBAL_METHOD, Backtest
from penstock_hives.forecast.baseline import MEDIAN_METHOD
from penstock_hives.forecast.grid import HOURS, WEEK

INK: Final = "#1d2733"
FAINT: Final = "#8a97a6"
LINE: Final = "#dfe5ec"
MODEL: Final = "#0b6e99"
BAND: Final = "#9fd0e6"
PEAK: Final = "#f4b942"
#: Text in SVG stays text, and the same figures give the same bytes.
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


def draw_backtest(result: Backtest, path: Path, venue: str | None = None) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ranked = sorted(
        (each for each in result.forecasts if result.tallies[GLOBAL_METHOD][each].actual > 0),
        key=lambda each: result.tallies[GLOBAL_METHOD][each].wape,
    )
    chosen = venue or ranked[len(ranked) // 2]
    height = 5.0 + 0.26 * len(ranked)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, height), facecolor="white")
        upper, lower = figure.subplots(2, 1, height_ratios=[3.2, 0.6 + 0.26 * len(ranked)])
        _week(upper, result, chosen)
        _all_venues(lower, result, ranked)
        figure.tight_layout(h_pad=2.5)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def typical_week_start(result: Backtest, venue: str) -> int:
    """The index of the Monday of the week of median accuracy."""
    forecast = result.forecasts[venue]
    first = -result.span.first.weekday() % WEEK
    scored = []
    for start in range(first, len(forecast.actual) - WEEK + 1, WEEK):
        actual, p50 = (each[start : start + WEEK] for each in (forecast.actual, forecast.p50))
        if np.isfinite(actual).all() and np.isfinite(p50).all() and actual.sum() > 0:
            scored.append((float(np.abs(actual - p50).sum() / actual.sum()), start))
    return sorted(scored)[len(scored) // 2][1] if scored else 0


def _week(axes: Any, result: Backtest, venue: str) -> None:
    start = typical_week_start(result, venue)
    forecast = result.forecasts[venue]
    actual, p50, p90 = (
        each[start : start + WEEK] for each in (forecast.actual, forecast.p50, forecast.p90)
    )
    days = len(p50)
    hours = np.arange(days * HOURS)
    axes.fill_between(
        hours, p50.ravel(), p90.ravel(), color=BAND, alpha=0.55, lw=0, label="from p50 to p90"
    )
    axes.plot(hours, p50.ravel(), color=MODEL, lw=1.8, label="forecast, p50")
    axes.plot(hours, actual.ravel(), "o", color=INK, ms=3, mew=0, label="counted")
    top = float(np.nanmax([np.nanmax(p90), np.nanmax(actual)])) if days else 1.0
    for day in range(days):
        peak = peak_window(p50[day])
        if peak is not None:
            left, right = (day * HOURS + each for each in peak)
            label = "peak window" if day == 0 else None
            axes.plot(
                [left - 0.5, right - 0.5],
                [-0.035 * top] * 2,
                color=PEAK,
                lw=4,
                solid_capstyle="butt",
                label=label,
            )
    monday = result.span.first + timedelta(days=start)
    axes.set_xticks(np.arange(days) * HOURS + HOURS / 2)
    axes.set_xticklabels([_day(monday + timedelta(days=day)) for day in range(days)])
    for day in range(1, days):
        axes.axvline(day * HOURS - 0.5, color=LINE, lw=0.8, zorder=0)
    axes.set_xlim(-0.5, days * HOURS - 0.5)
    axes.set_ylim(-0.07 * top, 1.06 * top)
    axes.set_ylabel("people an hour")
    title = f"{venue}: a week forecast day by day"
    _plain(axes, title)


def _all_venues(axes: Any, result: Backtest, ranked: list[str]) -> None:
    rows = np.arange(len(ranked))
    usual, model = (
        np.array([result.tallies[method][each].wape for each in ranked])
        for method in (MEDIAN_METHOD, GLOBAL_METHOD)
    )
    axes.hlines(rows, model, usual, color=LINE, lw=2.5, zorder=1)
    axes.plot(usual, rows, "o", color=FAINT, ms=6, mfc="white", mew=1.5, label=MEDIAN_METHOD)
    axes.plot(model, rows, "o", color=MODEL, ms=6.5, mew=0, label=GLOBAL_METHOD)
    for method, color in ((MEDIAN_METHOD, FAINT), (GLOBAL_METHOD, MODEL)):
        pooled = result.total(method).wape
        axes.axvline(pooled, color=color, lw=1, ls=(0, (4, 3)), zorder=0)
        side = "left" if method == MEDIAN_METHOD else "right"
        axes.text(
            pooled,
            len(ranked) - 0.35,
            f" {pooled:.3f} ",
            color=color,
            ha=side,
            va="bottom",
            fontsize=9,
            fontweight="bold",
        )
    axes.set_yticks(rows)
    axes.set_yticklabels(ranked, color=INK, fontsize=9)
    axes.set_ylim(-0.7, len(ranked) + 0.45)
    axes.set_xlabel("WAPE, one day ahead (less is better); dashed: all venues together")
    span = f"{result.span.first} to {result.span.end - timedelta(days=1)}"
    title = f"Errors by venue, {span}"
    axes.grid(axis="x", color=LINE, lw=0.6)
    _plain(axes, title)


def _plain(axes: Any, title: str) -> None:
    """The title above the legend, both above the plot."""
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=28)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.012, 1.0),
        ncols=4,
        frameon=False,
        fontsize=9,
        columnspacing=1.8,
    )
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _day(day: date) -> str:
    return f"{datetime.combine(day, time()):%a %-d %b}"
