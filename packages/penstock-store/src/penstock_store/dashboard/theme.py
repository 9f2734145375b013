"""Style sheet, colours, logo, and options that all charts share.

Charts are rendered as SVG, so the style sheet colours their text for light and dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nicegui import app, ui

from penstock import __version__

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
#: Legible in light and dark mode.
CHART_TEXT_COLOUR: Final = "#8294a6"
CHART_LINE_COLOUR: Final = "rgba(130, 148, 166, 0.25)"


def install_theme() -> None:
    app.add_static_files(_STATIC_URL, Path(__file__).with_name("static"))
    link = f'<link rel="stylesheet" href="{_STATIC_URL}/theme.css?{__version__}">'
    script = f'<script defer src="{_STATIC_URL}/charts.js?{__version__}"></script>'
    ui.add_head_html(link + script, shared=True)
    app.colors(primary=ACCENT_COLOUR, positive="#2b9a66", negative="#d64545", warning="#d9902f")


ChartOptions = dict[str, Any]


def draw_chart(options: ChartOptions, about: str) -> ui.echart:
    """With buttons that export it; `about` is the description for screen readers."""
    box = ui.element("div").classes("p-charted")
    box.props["data-name"] = "-".join(re.findall(r"\w+", about.lower()))[:60]
    with box:
        chart = ui.echart(options, renderer="svg").classes("p-chart").props("role=img")
        chart.props["aria-label"] = about
        with ui.element("div").classes("p-export"):
            for kind in ("CSV", "PNG"):
                button = ui.button(kind).props("flat dense no-caps size=sm")
                button.props["aria-label"] = f"Export as {kind}: {about}"
                function = f"exportChart{kind.capitalize()}"
                button.on("click", js_handler=f"(event) => {function}(event.currentTarget)")
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
    return {
        "type": "category",
        "data": list(names),
        "axisTick": {"show": False},
        "axisLine": {"lineStyle": {"color": CHART_LINE_COLOUR}},
        "axisLabel": {"color": CHART_TEXT_COLOUR, "fontSize": 11.5, "hideOverlap": True},
    }


def value_axis(**axis: Any) -> ChartOptions:
    return {
        "type": "value",
        "splitLine": {"lineStyle": {"color": CHART_LINE_COLOUR}},
        "axisLabel": {"color": CHART_TEXT_COLOUR, "fontSize": 11.5},
        "nameTextStyle": {"color": CHART_TEXT_COLOUR},
        **axis,
    }
