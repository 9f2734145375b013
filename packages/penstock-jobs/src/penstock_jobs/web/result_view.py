"""The result of a job on its page: figures, charts, tables, downloads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from nicegui import ui
from starlette.responses import PlainTextResponse, Response

from penstock.core.errors import NotFound, PenstockError, PreconditionFailed
from penstock_jobs.http import results
from penstock_jobs.http.results import ResultFormat
from penstock_jobs.model import JobResponse
from penstock_jobs.science import model_file
from penstock_jobs.science.calibration import CalibrationReport
from penstock_jobs.service import JobService
from penstock_jobs.web import result_data
from penstock_jobs.web.result_data import (
    ANIMAL,
    HUMAN,
    UNDECIDED,
    ModelFacts,
    ResultPrediction,
)
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import (
    ACCENT_COLOUR,
    ANIMAL_COLOUR,
    CHART_TEXT_COLOUR,
    HUMAN_COLOUR,
    ChartOptions,
    base_options,
    category_axis,
    chart_grid,
    draw_chart,
    value_axis,
)

_LABELS = {
    "ERROR2": "by squared error",
    "ERROR": "by error",
    "MAJORITY_VOTE": "one model, one vote",
}


async def show_result(response: JobResponse) -> None:
    if response.results:
        _predictions(response)
    if response.models:
        await _models(response)
    if response.value is not None and not (response.results or response.models):
        _value(response)


def downloads(response: JobResponse) -> None:
    names = {
        ResultFormat.CSV: "Table, CSV",
        ResultFormat.ZIP: "Models, zip",
        ResultFormat.XML: "XML",
        ResultFormat.JSON: "JSON",
    }
    for kind, name in names.items():
        if kind in results.result_formats(response):
            with ui.link(target=file_address(response.id, kind)).classes("p-download"):
                ui.icon("download")
                ui.label(name)


def figure(value: str, name: str) -> None:
    with ui.element("div").classes("p-figure"):
        ui.label(value).classes("p-figure-value")
        ui.label(name).classes("p-figure-name")


def _predictions(response: JobResponse) -> None:
    found = {result.name: result_data.read_prediction(result) for result in response.results}
    first = results.SCHEME if results.SCHEME in found else next(iter(found))

    @ui.refreshable
    def shown(scheme: str) -> None:
        _prediction(found[scheme])

    with ui.row().classes("items-center w-full"):
        ui.label("Origin of the samples").classes("p-h2")
        ui.space()
        if len(found) > 1:
            options = {name: _LABELS.get(name, name) for name in found}
            choice = ui.select(options, value=first, label="Votes are weighted")
            choice.props("outlined dense options-dense").classes("p-choice-wide")
            choice.on_value_change(lambda event: shown.refresh(event.value))
    shown(first)


def _prediction(found: ResultPrediction) -> None:
    with ui.element("div").classes("p-figures"):
        figure(f"{found.predicted} / {len(found.samples)}", "samples predicted")
        figure(str(found.count(HUMAN)), "human")
        figure(str(found.count(ANIMAL)), "animal")
        if undecided := found.count(UNDECIDED):
            figure(str(undecided), "undecided")
        if found.error is not None:
            figure(f"{found.error:.1%}", "test error, by the ids")
    with ui.element("div").classes("p-columns"):
        if found.confusion is not None:
            with ui.column().classes("p-card"):
                ui.label("Confusion matrix").classes("p-h3")
                ui.html(confusion_table(found.confusion), sanitize=False).classes("w-full")
        _chart("Age and dilution", age_and_dilution_chart(found), 300)
    with ui.element("div").classes("p-columns"):
        height = max(240, 21 * len(found.samples[:60]) + 40)
        _chart("Confidence", confidence_chart(found), min(height, 900))
        if found.deciding:
            rows = [(name, float(count)) for name, count in found.deciding]
            _chart("Deciding features, by number of samples", bar_chart(rows, minInterval=1), 340)
    with ui.column().classes("p-card"):
        ui.label("Samples").classes("p-h3")
        ui.html(sample_table(found), sanitize=False).classes("p-scroll")


async def _models(response: JobResponse) -> None:
    try:
        facts = result_data.read_model_facts(
            await asyncio.to_thread(model_file.load_model, response.models)
        )
    except PenstockError as error:
        ui.label(f"The models cannot be read: {error}").classes("p-bad-text")
        return
    with ui.element("div").classes("p-figures"):
        figure(f"{facts.signatures:,}", "signatures")
        figure(f"{facts.perfect:,}", "without an error in validation")
        figure(f"{facts.median_score:.3f}", "median score")
        figure(str(facts.samples), "reference samples")
        figure(str(facts.cells), "ages and seasons")
    with ui.element("div").classes("p-columns"):
        rows = [(name, float(count)) for name, count in facts.features]
        _chart("Features of the models", bar_chart(rows, minInterval=1), 360)
        _chart(
            "Best score of each classifier",
            bar_chart(facts.best_by_classifier[:14], min=0.5, max=1),
            360,
        )
    with ui.element("div").classes("p-columns"):
        _chart("Scores of the signatures", column_chart(facts.scores, "score"), 280)
        with ui.column().classes("p-card"):
            ui.label("Hours until 10 % are left").classes("p-h3")
            ui.html(decay_table(facts), sanitize=False).classes("p-scroll")
    if facts.calibration is not None:
        _calibration(facts.calibration)


def _calibration(report: CalibrationReport) -> None:
    with ui.element("div").classes("p-figures"):
        figure(f"{report.coverage:.0%}", "of samples with an answer")
        figure(f"{report.accuracy:.1%}", "of these right, on held-out rows")
        figure(f"{report.ece[0]:.3f} → {report.ece[1]:.3f}", "calibration error")
        figure(f"{report.brier[0]:.3f} → {report.brier[1]:.3f}", "Brier score")
    _chart("Reliability of the confidence", reliability_chart(report), 320)


def _value(response: JobResponse) -> None:
    value = response.value
    with ui.column().classes("p-card"):
        if isinstance(value, dict) and {"output", "errors"} <= set(value):
            ui.label(f"Ended with status {value.get('status')}").classes("p-h3")
            for name in ("output", "errors"):
                if value[name]:
                    ui.label(name).classes("p-eyebrow")
                    _preformatted(str(value[name]))
        else:
            ui.label("Returned value").classes("p-h3")
            _preformatted(json.dumps(value, indent=2, ensure_ascii=False))


def _preformatted(text: str) -> None:
    ui.html(f"<pre class='p-output'>{escape(text)}</pre>", sanitize=False).classes("w-full")


def _chart(title: str, options: ChartOptions, height: int) -> None:
    with ui.column().classes("p-card"):
        ui.label(title).classes("p-h3")
        draw_chart(options, title).style(f"height: {height}px")


def confusion_table(counts: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """HTML: real by predicted class."""
    (animal_right, animal_wrong), (human_wrong, human_right) = counts

    def cell(count: int, right: bool) -> str:
        style = "right-cell" if right else "wrong-cell" if count else "none-cell"
        return f"<td class='{style}'>{count}</td>"

    return (
        "<table class='p-confusion'><thead><tr><th></th><th colspan='2'>predicted</th></tr>"
        "<tr><th>real</th><th>animal</th><th>human</th></tr></thead><tbody>"
        f"<tr><th>animal</th>{cell(animal_right, True)}{cell(animal_wrong, False)}</tr>"
        f"<tr><th>human</th>{cell(human_wrong, False)}{cell(human_right, True)}</tr>"
        "</tbody></table>"
    )


def sample_table(found: ResultPrediction) -> str:
    head = "".join(
        f"<th class='{style}'>{name}</th>"
        for name, style in (
            ("sample", ""),
            ("origin", ""),
            ("confidence", "right"),
            ("age, h", "right"),
            ("dilution", "right"),
            ("decided by", ""),
        )
    )
    lines = "".join(
        f"<tr><td class='p-whole'>{escape(sample.name)}</td>"
        f"<td><span class='p-origin {escape(sample.origin) or 'unknown'}'>"
        f"{escape(sample.origin) or 'unknown'}</span></td>"
        f"<td class='right'>{sample.confidence:.2f}</td>"
        f"<td class='right'>{sample.hours:.0f}</td>"
        f"<td class='right'>{_magnitude(sample.dilution)}</td>"
        f"<td class='p-wide'>{escape(', '.join(sample.decided_by))}</td></tr>"
        for sample in found.samples
    )
    return f"<table class='p-table'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _magnitude(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def decay_table(facts: ModelFacts) -> str:
    def hours(value: float | None) -> str:
        return "–" if value is None else f"{value:,.0f}"

    lines = "".join(
        f"<tr><td>{name}</td><td class='right'>{hours(summer)}</td>"
        f"<td class='right'>{hours(winter)}</td></tr>"
        for name, summer, winter in facts.decay
    )
    return (
        "<table class='p-table p-tight'><thead><tr><th>indicator</th><th class='right'>summer</th>"
        f"<th class='right'>winter</th></tr></thead><tbody>{lines}</tbody></table>"
    )


COLOURS = {HUMAN: HUMAN_COLOUR, ANIMAL: ANIMAL_COLOUR, "": CHART_TEXT_COLOUR}


def _bars(data: Sequence[Any], **series: Any) -> ChartOptions:
    options = {"type": "bar", "barMaxWidth": 14, "data": data, **series}
    return {"tooltip": {"trigger": "item", "formatter": "{b}: {c}"}, "series": [options]}


def _bar_style(colour: str, radius: Sequence[int] = (0, 4, 4, 0)) -> dict[str, Any]:
    return {"color": colour, "borderRadius": list(radius)}


def confidence_chart(found: ResultPrediction) -> ChartOptions:
    """A bar for each sample, coloured by origin."""
    rows = sorted(found.samples, key=lambda sample: sample.confidence)
    data = [
        {
            "value": round(sample.confidence, 3),
            "itemStyle": _bar_style(COLOURS.get(sample.origin, CHART_TEXT_COLOUR)),
        }
        for sample in rows
    ]
    return base_options(
        grid=chart_grid(left=8, right=28),
        xAxis=value_axis(min=0, max=1),
        yAxis=category_axis([sample.name for sample in rows]),
        **_bars(data),
    )


def age_and_dilution_chart(found: ResultPrediction) -> ChartOptions:
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
    return base_options(
        grid=chart_grid(left=8, top=34, bottom=26),
        legend={"top": 0, "right": 0, "textStyle": {"color": CHART_TEXT_COLOUR}, "icon": "circle"},
        xAxis=value_axis(name="hours", nameLocation="middle", nameGap=26),
        yAxis={**value_axis(name="dilution"), "type": "log", "minorSplitLine": {"show": False}},
        tooltip={"trigger": "item"},
        series=series,
    )


def reliability_chart(report: CalibrationReport) -> ChartOptions:
    """The share of right answers by confidence, before and after calibration."""
    bins = {"share of votes": report.before, "calibrated": report.after}
    colours = {"share of votes": CHART_TEXT_COLOUR, "calibrated": ACCENT_COLOUR}
    series: list[dict[str, Any]] = [
        {
            "type": "line",
            "name": name,
            "symbolSize": 9,
            "itemStyle": {"color": colours[name]},
            "lineStyle": {"color": colours[name]},
            "data": [
                {"name": f"{each.count} answers", "value": [each.confidence, each.right]}
                for each in found
            ],
        }
        for name, found in bins.items()
    ]
    ideal = {"type": "dashed", "color": CHART_TEXT_COLOUR, "width": 1}
    series.append({"type": "line", "symbol": "none", "lineStyle": ideal, "data": [[0, 0], [1, 1]]})
    return base_options(
        grid=chart_grid(left=8, top=34, bottom=26),
        legend={"top": 0, "right": 0, "textStyle": {"color": CHART_TEXT_COLOUR}, "data": [*bins]},
        xAxis=value_axis(min=0, max=1, name="confidence", nameLocation="middle", nameGap=26),
        yAxis=value_axis(min=0, max=1, name="right"),
        tooltip={"trigger": "item"},
        series=series,
    )


def bar_chart(rows: Sequence[tuple[str, float]], **axis: Any) -> ChartOptions:
    """The first row is at the top."""
    bottom_up = list(reversed(rows))
    label = {"show": True, "position": "right", "color": CHART_TEXT_COLOUR, "fontSize": 11}
    data = [round(value, 3) for _, value in bottom_up]
    return base_options(
        grid=chart_grid(left=8, right=34),
        xAxis=value_axis(**axis),
        yAxis=category_axis([name for name, _ in bottom_up]),
        **_bars(data, itemStyle=_bar_style(ACCENT_COLOUR), label=label),
    )


def column_chart(rows: Sequence[tuple[str, int]], name: str) -> ChartOptions:
    style = _bar_style(ACCENT_COLOUR, (4, 4, 0, 0))
    return base_options(
        grid=chart_grid(left=8, bottom=26),
        xAxis={**category_axis([label for label, _ in rows]), "name": name, **_MIDDLE},
        yAxis=value_axis(),
        **_bars([value for _, value in rows], barMaxWidth=26, itemStyle=style),
    )


_MIDDLE = {"nameLocation": "middle", "nameGap": 26, "nameTextStyle": {"color": CHART_TEXT_COLOUR}}


def file_address(id: str, kind: ResultFormat) -> str:  # noqa: A002 - the name in records
    return f"/results/{quote(id)}?as={kind}"


def result_file(
    jobs: Callable[[PageRequest], JobService],
) -> Callable[[PageRequest], Awaitable[Response]]:
    async def answer(visit: PageRequest) -> Response:
        try:
            kind = ResultFormat(visit.query.get("as", ResultFormat.JSON))
            scheme = visit.query.get("scheme", results.SCHEME)
            response = await jobs(visit).result(visit.parameters["id"])
            file = results.write_result(response, kind, scheme)
        except ValueError:
            return PlainTextResponse("Unknown result format.", 404)
        except (NotFound, PreconditionFailed) as error:
            return PlainTextResponse(str(error), 404)
        name = quote(file.file_name)
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(file.body, media_type=file.media_type, headers=headers)

    return answer
