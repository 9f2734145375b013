"""Charts as ECharts has them: plain options, the same looks for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.web.charting import Options, grid, names, plain, values
from penstock.web.jobs.reading import ANIMAL, HUMAN, Prediction
from penstock.web.theme import ACCENT, ANIMAL_COLOUR, HUMAN_COLOUR, INK

COLOURS = {HUMAN: HUMAN_COLOUR, ANIMAL: ANIMAL_COLOUR, "": INK}


def confidence(found: Prediction) -> Options:
    """A bar for each sample, as sure as it is, coloured by origin."""
    rows = sorted(found.samples, key=lambda sample: sample.confidence)
    return plain(
        grid=grid(left=8, right=28),
        xAxis=values(min=0, max=1),
        yAxis=names([sample.name for sample in rows]),
        tooltip={"trigger": "item", "formatter": "{b}: {c}"},
        series=[
            {
                "type": "bar",
                "barMaxWidth": 14,
                "data": [
                    {
                        "value": round(sample.confidence, 3),
                        "itemStyle": {
                            "color": COLOURS.get(sample.origin, INK),
                            "borderRadius": [0, 4, 4, 0],
                        },
                    }
                    for sample in rows
                ],
            }
        ],
    )


def age_and_dilution(found: Prediction) -> Options:
    """Where samples lie: how old they seem, and how thin."""
    series = [
        {
            "type": "scatter",
            "name": origin,
            "symbolSize": 13,
            "itemStyle": {"color": COLOURS[origin], "opacity": 0.85},
            "data": [
                {"name": sample.name, "value": [round(sample.hours, 1), sample.dilution]}
                for sample in found.samples
                if sample.origin == origin and sample.dilution > 0
            ],
        }
        for origin in (HUMAN, ANIMAL)
    ]
    return plain(
        grid=grid(left=8, top=34, bottom=26),
        legend={"top": 0, "right": 0, "textStyle": {"color": INK}, "icon": "circle"},
        xAxis=values(name="hours", nameLocation="middle", nameGap=26),
        yAxis={**values(name="dilution"), "type": "log", "minorSplitLine": {"show": False}},
        tooltip={"trigger": "item"},
        series=series,
    )


def bars(rows: Sequence[tuple[str, float]], **axis: Any) -> Options:
    """Named figures, the first at the top."""
    turned = list(reversed(rows))
    return plain(
        grid=grid(left=8, right=34),
        xAxis=values(**axis),
        yAxis=names([name for name, _ in turned]),
        tooltip={"trigger": "item", "formatter": "{b}: {c}"},
        series=[
            {
                "type": "bar",
                "barMaxWidth": 14,
                "itemStyle": {"color": ACCENT, "borderRadius": [0, 4, 4, 0]},
                "label": {"show": True, "position": "right", "color": INK, "fontSize": 11},
                "data": [round(value, 3) for _, value in turned],
            }
        ],
    )


def columns(rows: Sequence[tuple[str, int]], name: str) -> Options:
    return plain(
        grid=grid(left=8, bottom=26),
        xAxis={**names([label for label, _ in rows]), "name": name, **_MIDDLE},
        yAxis=values(),
        tooltip={"trigger": "item", "formatter": "{b}: {c}"},
        series=[
            {
                "type": "bar",
                "barMaxWidth": 26,
                "itemStyle": {"color": ACCENT, "borderRadius": [4, 4, 0, 0]},
                "data": [value for _, value in rows],
            }
        ],
    )


_MIDDLE = {"nameLocation": "middle", "nameGap": 26, "nameTextStyle": {"color": INK}}
