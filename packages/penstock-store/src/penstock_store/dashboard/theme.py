"""How the dashboards look: a style sheet, a few colours, a mark.

Colours are variables of the style sheet, one set for light and one for dark. Charts are drawn on
canvases that do not see those: `CHART_TEXT_COLOUR` reads on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nicegui import app, ui

from penstock import __version__

#: A gate in a channel, and the water behind it.
LOGO: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="28" height="28"'
    ' fill="none">'
    '<rect width="32" height="32" rx="8" fill="#0c7f94"/>'
    '<path d="M4 19c2.4-2.6 5-2.6 7.4 0M20.6 23c2.4-2.6 5-2.6 7.4 0" stroke="#a5eef7"'
    ' stroke-width="2.4" stroke-linecap="round"/>'
    '<path d="M4 13.5c2.4-2.6 5-2.6 7.4 0" stroke="#fff" stroke-width="2.4"'
    ' stroke-linecap="round"/>'
    '<path d="M16 5v16" stroke="#fff" stroke-width="3.6" stroke-linecap="round"/>'
    '<path d="M12.5 5h7" stroke="#fff" stroke-width="2.4" stroke-linecap="round"/></svg>'
)
FAVICON: Final = LOGO
_STATIC_URL: Final = "/static"

ACCENT_COLOUR: Final = "#0c8fa6"
HUMAN_COLOUR: Final = "#e07a3f"
ANIMAL_COLOUR: Final = "#2f9e8f"
#: Text and lines of charts, by light and by dark.
CHART_TEXT_COLOUR: Final = "#8294a6"
CHART_LINE_COLOUR: Final = "rgba(130, 148, 166, 0.25)"


def install_theme() -> None:
    """For all pages."""
    app.add_static_files(_STATIC_URL, Path(__file__).with_name("static"))
    link = f'<link rel="stylesheet" href="{_STATIC_URL}/theme.css?{__version__}">'
    ui.add_head_html(link, shared=True)
    app.colors(primary=ACCENT_COLOUR, positive="#2b9a66", negative="#d64545", warning="#d9902f")


# What charts of all pages have in common, as ECharts has it: plain options, one look.
#
# They are drawn as SVG, whose words are the style sheet's to colour, by day and by night; what a
# canvas writes would have to be read on both.

ChartOptions = dict[str, Any]


def draw_chart(options: ChartOptions, about: str) -> ui.echart:
    """`about` is what those are told it is who cannot see it."""
    chart = ui.echart(options, renderer="svg").classes("p-chart").props("role=img")
    chart.props["aria-label"] = about  # whatever is in it
    return chart


def base_options(**options: Any) -> ChartOptions:
    return {
        "backgroundColor": "transparent",
        "animationDuration": 350,
        "textStyle": {"color": CHART_TEXT_COLOUR, "fontFamily": "inherit"},
        **options,
    }


def chart_grid(**margins: int) -> ChartOptions:
    return {"left": 8, "right": 14, "top": 10, "bottom": 8, "containLabel": True, **margins}


def category_axis(names: Sequence[str]) -> ChartOptions:
    """An axis of words."""
    return {
        "type": "category",
        "data": list(names),
        "axisTick": {"show": False},
        "axisLine": {"lineStyle": {"color": CHART_LINE_COLOUR}},
        "axisLabel": {"color": CHART_TEXT_COLOUR, "fontSize": 11.5, "hideOverlap": True},
    }


def value_axis(**axis: Any) -> ChartOptions:
    """An axis of numbers."""
    return {
        "type": "value",
        "splitLine": {"lineStyle": {"color": CHART_LINE_COLOUR}},
        "axisLabel": {"color": CHART_TEXT_COLOUR, "fontSize": 11.5},
        "nameTextStyle": {"color": CHART_TEXT_COLOUR},
        **axis,
    }
