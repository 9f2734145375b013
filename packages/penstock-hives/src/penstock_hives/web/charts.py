"""Charts of a hive: today, typical week, days, sentiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock_hives.analytics.models import Kpi
from penstock_hives.messages.models import FeedbackDay
from penstock_hives.occupancy.models import TypicalHour
from penstock_store.dashboard.theme import (
    ACCENT_COLOUR,
    CHART_LINE_COLOUR,
    CHART_TEXT_COLOUR,
    ChartOptions,
    base_options,
    category_axis,
    chart_grid,
    value_axis,
)

HONEY: Final = "#e79d13"
GOOD: Final = "#2b9a66"
BAD: Final = "#d64545"
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: From empty to full; legible in light and dark mode.
_HEAT: Final = ("rgba(231, 157, 19, 0.06)", "rgba(231, 157, 19, 0.45)", "#e79d13", "#c2501c")


def today_chart(
    actual: Mapping[int, int],
    typical: Mapping[int, float],
    p50: Mapping[int, float],
    p90: Mapping[int, float],
) -> ChartOptions:
    """Entries by hour: actual, expected and usual."""
    busy = {hour for of in (actual, typical, p50) for hour, number in of.items() if number >= 0.5}
    hours = range(min(busy, default=8), max(busy, default=20) + 1)

    def line(of: Mapping[int, float]) -> list[float | None]:
        return [round(of[hour], 1) if hour in of else None for hour in hours]

    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38),
        tooltip={"trigger": "axis"},
        xAxis=category_axis([f"{hour}:00" for hour in hours]),
        yAxis=value_axis(minInterval=1),
        series=[
            {
                "name": "today",
                "type": "bar",
                "barMaxWidth": 22,
                "itemStyle": {"color": HONEY, "borderRadius": [4, 4, 0, 0]},
                "data": line(actual),
            },
            _line("expected", ACCENT_COLOUR, line(p50)),
            _line("90th percentile", ACCENT_COLOUR, line(p90), type="dotted", width=1.5),
            _line("usual", CHART_TEXT_COLOUR, line(typical), type="dashed", width=1.5),
        ],
    )


def week_chart(hours: Sequence[TypicalHour]) -> ChartOptions:
    """The usual occupancy by day and hour."""
    hours = [each for each in hours if each.occupancy >= 0.5] or hours
    first = min((each.hour for each in hours), default=8)
    last = max((each.hour for each in hours), default=20)
    most = max((each.occupancy for each in hours), default=1.0)
    return base_options(
        grid=chart_grid(bottom=44),
        tooltip={"position": "top"},
        xAxis={
            **category_axis([f"{hour}" for hour in range(first, last + 1)]),
            "splitArea": {"show": False},
        },
        yAxis={**category_axis(DAYS), "inverse": True},
        visualMap={
            "min": 0,
            "max": max(1, round(most)),
            "orient": "horizontal",
            "left": "center",
            "bottom": 0,
            "itemHeight": 90,
            "itemWidth": 12,
            "textStyle": {"color": CHART_TEXT_COLOUR},
            "inRange": {"color": list(_HEAT)},
        },
        series=[
            {
                "name": "people inside",
                "type": "heatmap",
                "itemStyle": {"borderWidth": 1, "borderColor": CHART_LINE_COLOUR},
                "data": [
                    [each.hour - first, each.weekday, round(each.occupancy, 1)] for each in hours
                ],
            }
        ],
    )


def days_chart(kpis: Sequence[Kpi]) -> ChartOptions:
    """Visits and mean occupancy by day."""
    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38),
        tooltip={"trigger": "axis"},
        xAxis=category_axis([f"{kpi.day:%-d %b}" for kpi in kpis]),
        yAxis=[
            value_axis(minInterval=1),
            {
                **value_axis(max=100),
                "axisLabel": {"color": CHART_TEXT_COLOUR, "formatter": "{value} %"},
            },
        ],
        series=[
            {
                "name": "visits",
                "type": "bar",
                "barMaxWidth": 18,
                "itemStyle": {"color": HONEY, "borderRadius": [4, 4, 0, 0]},
                "data": [kpi.visits for kpi in kpis],
            },
            {
                **_line(
                    "mean occupancy", ACCENT_COLOUR, [_rounded(kpi.mean_percent) for kpi in kpis]
                ),
                "yAxisIndex": 1,
            },
        ],
    )


def sentiment_chart(found: Sequence[FeedbackDay]) -> ChartOptions:
    """Positive messages above the axis, negative ones below."""
    days = sorted({each.day for each in found})

    def bars(name: str, colour: str, sign: int) -> ChartOptions:
        counts = [sum(getattr(each, name) for each in found if each.day == day) for day in days]
        return {
            "name": name,
            "type": "bar",
            "stack": "messages",
            "barMaxWidth": 22,
            "itemStyle": {"color": colour},
            "data": [sign * count for count in counts],
        }

    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38),
        tooltip={"trigger": "axis"},
        xAxis=category_axis([f"{day:%-d %b}" for day in days]),
        yAxis=value_axis(minInterval=1),
        series=[bars("positive", GOOD, 1), bars("negative", BAD, -1)],
    )


#: Of several series; legible in light and dark mode.
PALETTE: Final = (
    *(HONEY, ACCENT_COLOUR, "#8f6fd1", "#2b9a66", "#d64545", "#c2501c", "#5b7fd6", "#8294a6"),
)


def lines_chart(names: Sequence[str], lines: Mapping[str, Sequence[float | None]]) -> ChartOptions:
    """A line for each series."""
    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38),
        tooltip={"trigger": "axis"},
        xAxis=category_axis(names),
        yAxis=value_axis(),
        series=[
            _line(name, PALETTE[number % len(PALETTE)], data)
            for number, (name, data) in enumerate(lines.items())
        ],
    )


#: Names of places beside their bars, on a phone as well.
_BESIDE: Final = {
    "width": 104,
    "overflow": "truncate",
    "interval": 0,
    "hideOverlap": False,
    "color": CHART_TEXT_COLOUR,
    "fontSize": 11,
}


def bars_chart(names: Sequence[str], bars: Mapping[str, Sequence[float]]) -> ChartOptions:
    """Groups of bars that lie, with the first name on top: names are longer than bars are wide."""
    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38, right=22),
        tooltip={"trigger": "axis"},
        xAxis=value_axis(splitNumber=4),
        yAxis={**category_axis(names), "axisLabel": _BESIDE, "inverse": True},
        series=_bars(bars, [0, 4, 4, 0]),
    )


def columns_chart(names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> ChartOptions:
    """Groups of columns, for days."""
    return base_options(
        legend=_legend(),
        grid=chart_grid(top=38),
        tooltip={"trigger": "axis"},
        xAxis=category_axis(names),
        yAxis=value_axis(minInterval=1),
        series=_bars(columns, [4, 4, 0, 0]),
    )


def _bars(bars: Mapping[str, Sequence[float]], corners: Sequence[int]) -> list[ChartOptions]:
    return [
        {
            "name": name,
            "type": "bar",
            "barMaxWidth": 18,
            "itemStyle": {
                "color": PALETTE[number % len(PALETTE)],
                "borderRadius": list(corners),
            },
            "data": list(data),
        }
        for number, (name, data) in enumerate(bars.items())
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _line(name: str, colour: str, data: Sequence[float | None], **style: Any) -> ChartOptions:
    return {
        "name": name,
        "type": "line",
        "smooth": 0.3,
        "smoothMonotone": "x",
        "symbol": "none",
        "itemStyle": {"color": colour},
        "lineStyle": {"color": colour, "width": 2.5, **style},
        "data": list(data),
    }


def _legend() -> ChartOptions:
    # Scrolls on narrow screens, where a second line would cover the chart.
    size = {
        "itemWidth": 16,
        "itemHeight": 8,
        "pageIconSize": 10,
        "pageIconColor": CHART_TEXT_COLOUR,
    }
    return {
        "type": "scroll",
        "top": 0,
        "left": 0,
        "textStyle": {"color": CHART_TEXT_COLOUR},
        **size,
    }
