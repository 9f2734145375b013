"""What charts of all pages have in common, as ECharts has it: plain options, one look.

They are drawn as SVG, whose words are the style sheet's to colour, by day and by night; what a
canvas writes would have to be read on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from penstock.web.theme import INK, LINE

Options = dict[str, Any]


def draw(options: Options, about: str) -> ui.echart:
    """`about` is what those are told it is who cannot see it."""
    chart = ui.echart(options, renderer="svg").classes("p-chart").props("role=img")
    chart.props["aria-label"] = about  # whatever is in it
    return chart


def plain(**options: Any) -> Options:
    return {
        "backgroundColor": "transparent",
        "animationDuration": 350,
        "textStyle": {"color": INK, "fontFamily": "inherit"},
        **options,
    }


def grid(**margins: int) -> Options:
    return {"left": 8, "right": 14, "top": 10, "bottom": 8, "containLabel": True, **margins}


def names(names: Sequence[str]) -> Options:
    """An axis of words."""
    return {
        "type": "category",
        "data": list(names),
        "axisTick": {"show": False},
        "axisLine": {"lineStyle": {"color": LINE}},
        "axisLabel": {"color": INK, "fontSize": 11.5, "hideOverlap": True},
    }


def values(**axis: Any) -> Options:
    """An axis of numbers."""
    return {
        "type": "value",
        "splitLine": {"lineStyle": {"color": LINE}},
        "axisLabel": {"color": INK, "fontSize": 11.5},
        "nameTextStyle": {"color": INK},
        **axis,
    }
