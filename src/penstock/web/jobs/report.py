"""What came of a job, as a page shows it: figures, plots, tables."""

from __future__ import annotations

import asyncio
import json
from html import escape

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock.jobs.http import answering
from penstock.jobs.http.answering import Kind
from penstock.jobs.model import Response
from penstock.jobs.science import modelfile
from penstock.web.charting import Options
from penstock.web.charting import draw as draw_chart
from penstock.web.jobs import charts, reading
from penstock.web.jobs.downloads import file_address
from penstock.web.jobs.reading import ANIMAL, HUMAN, ModelFacts, Prediction

_LABELS = {
    "ERROR2": "by squared error",
    "ERROR": "by error",
    "MAJORITY_VOTE": "one model, one vote",
}


async def show(response: Response) -> None:
    if response.results:
        _predictions(response)
    if response.models:
        await _models(response)
    if response.value is not None and not (response.results or response.models):
        _value(response)


def downloads(response: Response) -> None:
    names = {
        Kind.CSV: "Table, CSV",
        Kind.ZIP: "Models, zip",
        Kind.XML: "XML",
        Kind.JSON: "JSON",
    }
    for kind, name in names.items():
        if kind in answering.kinds(response):
            with ui.link(target=file_address(response.id, kind)).classes("p-download"):
                ui.icon("download")
                ui.label(name)


def figure(value: str, name: str) -> None:
    with ui.element("div").classes("p-figure"):
        ui.label(value).classes("p-figure-value")
        ui.label(name).classes("p-figure-name")


def _predictions(response: Response) -> None:
    found = {result.name: reading.prediction(result) for result in response.results}
    first = answering.SCHEME if answering.SCHEME in found else next(iter(found))

    @ui.refreshable
    def shown(scheme: str) -> None:
        _prediction(found[scheme])

    with ui.row().classes("items-center w-full"):
        ui.label("Where the samples come from").classes("p-h2")
        ui.space()
        if len(found) > 1:
            options = {name: _LABELS.get(name, name) for name in found}
            choice = ui.select(options, value=first, label="Votes are weighed")
            choice.props("outlined dense options-dense").classes("p-choice-wide")
            choice.on_value_change(lambda event: shown.refresh(event.value))
    shown(first)


def _prediction(found: Prediction) -> None:
    with ui.element("div").classes("p-figures"):
        figure(f"{found.predicted} / {len(found.samples)}", "samples predicted")
        figure(str(found.count(HUMAN)), "human")
        figure(str(found.count(ANIMAL)), "animal")
        if found.error is not None:
            figure(f"{found.error:.1%}", "test error, by the ids")
    with ui.element("div").classes("p-columns"):
        if found.confusion is not None:
            with ui.column().classes("p-card"):
                ui.label("Confusion matrix").classes("p-h3")
                ui.html(confusion_table(found.confusion), sanitize=False).classes("w-full")
        _chart("How old and how thin", charts.age_and_dilution(found), 300)
    with ui.element("div").classes("p-columns"):
        height = max(240, 21 * len(found.samples[:60]) + 40)
        _chart("How sure", charts.confidence(found), min(height, 900))
        if found.deciding:
            rows = [(name, float(count)) for name, count in found.deciding]
            _chart("What decided, in how many samples", charts.bars(rows, minInterval=1), 340)
    with ui.column().classes("p-card"):
        ui.label("Samples").classes("p-h3")
        ui.html(sample_table(found), sanitize=False).classes("p-scroll")


async def _models(response: Response) -> None:
    try:
        facts = reading.model_facts(await asyncio.to_thread(modelfile.load, response.models))
    except PenstockError as error:
        ui.label(f"These models cannot be read here: {error}").classes("p-bad-text")
        return
    with ui.element("div").classes("p-figures"):
        figure(f"{facts.signatures:,}", "signatures")
        figure(f"{facts.perfect:,}", "without a mistake in validation")
        figure(f"{facts.median_score:.3f}", "median score")
        figure(str(facts.samples), "reference samples")
        figure(str(facts.cells), "ages and seasons")
    with ui.element("div").classes("p-columns"):
        rows = [(name, float(count)) for name, count in facts.features]
        _chart("What the models look at", charts.bars(rows, minInterval=1), 360)
        _chart(
            "The best of each classifier",
            charts.bars(facts.best_by_classifier[:14], min=0.5, max=1),
            360,
        )
    with ui.element("div").classes("p-columns"):
        _chart("How good signatures are", charts.columns(facts.scores, "score"), 280)
        with ui.column().classes("p-card"):
            ui.label("Hours until a tenth is left").classes("p-h3")
            ui.html(fading_table(facts), sanitize=False).classes("p-scroll")


def _value(response: Response) -> None:
    value = response.value
    with ui.column().classes("p-card"):
        if isinstance(value, dict) and {"output", "errors"} <= set(value):
            ui.label(f"Ended with status {value.get('status')}").classes("p-h3")
            for name in ("output", "errors"):
                if value[name]:
                    ui.label(name).classes("p-eyebrow")
                    _preformatted(str(value[name]))
        else:
            ui.label("What it returned").classes("p-h3")
            _preformatted(json.dumps(value, indent=2, ensure_ascii=False))


def _preformatted(text: str) -> None:
    ui.html(f"<pre class='p-output'>{escape(text)}</pre>", sanitize=False).classes("w-full")


def _chart(title: str, options: Options, height: int) -> None:
    with ui.column().classes("p-card"):
        ui.label(title).classes("p-h3")
        draw_chart(options, title).style(f"height: {height}px")


def confusion_table(counts: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """HTML; real by predicted, right ones apart from wrong ones."""
    (animal_right, animal_wrong), (human_wrong, human_right) = counts

    def cell(count: int, right: bool) -> str:
        look = "right-cell" if right else "wrong-cell" if count else "none-cell"
        return f"<td class='{look}'>{count}</td>"

    return (
        "<table class='p-confusion'><thead><tr><th></th><th colspan='2'>predicted</th></tr>"
        "<tr><th>real</th><th>animal</th><th>human</th></tr></thead><tbody>"
        f"<tr><th>animal</th>{cell(animal_right, True)}{cell(animal_wrong, False)}</tr>"
        f"<tr><th>human</th>{cell(human_wrong, False)}{cell(human_right, True)}</tr>"
        "</tbody></table>"
    )


def sample_table(found: Prediction) -> str:
    head = "".join(
        f"<th class='{look}'>{name}</th>"
        for name, look in (
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


def fading_table(facts: ModelFacts) -> str:
    def hours(value: float | None) -> str:
        return "–" if value is None else f"{value:,.0f}"

    lines = "".join(
        f"<tr><td>{name}</td><td class='right'>{hours(summer)}</td>"
        f"<td class='right'>{hours(winter)}</td></tr>"
        for name, summer, winter in facts.fading
    )
    return (
        "<table class='p-table p-tight'><thead><tr><th>indicator</th><th class='right'>summer</th>"
        f"<th class='right'>winter</th></tr></thead><tbody>{lines}</tbody></table>"
    )
