"""The page that compares predictions of the same samples by several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import quote, unquote

from nicegui import ui

from penstock.core.errors import NotFound, PenstockError
from penstock_jobs.http import results
from penstock_jobs.model import JobRecord, JobState
from penstock_jobs.service import JobService
from penstock_jobs.web import result_data
from penstock_jobs.web.job_row import address, progress_text, utc_now
from penstock_jobs.web.result_data import ANIMAL, HUMAN, UNDECIDED, ResultPrediction, ResultSample
from penstock_jobs.web.result_view import figure

_RELOAD_SECONDS: Final = 1.0
#: Predictions to choose from.
_LISTED: Final = 50


def comparison_address(ids: Sequence[str]) -> str:
    return f"/compare?jobs={quote(','.join(quote(each, safe='') for each in ids), safe='')}"


def parse_ids(text: str) -> list[str]:
    return [unquote(each) for each in text.split(",") if each]


class ComparisonPage:
    def __init__(self, jobs: JobService, ids: Sequence[str]) -> None:
        self._jobs = jobs
        self._ids = list(dict.fromkeys(ids))
        self._done: dict[str, ResultPrediction] = {}

    async def draw(self) -> None:
        listed = await self._jobs.list(1, _LISTED, JobState.DONE, "predict_models")
        names = list(dict.fromkeys([*self._ids, *(record.id for record in listed.records)]))
        with ui.column().classes("p-card w-full gap-3"):
            ui.label("Compare predictions").classes("p-h2")
            choice = ui.select(names, value=self._ids, multiple=True, label="Predictions")
            choice.props("outlined dense options-dense use-chips").classes("w-full")
            choice.on_value_change(lambda event: self._choose(event.value))
        self._shown = ui.column().classes("w-full gap-4")
        await self._load()
        self._timer = ui.timer(_RELOAD_SECONDS, self._reload)

    async def _choose(self, ids: Sequence[str]) -> None:
        self._ids = list(ids)
        await self._load()
        self._timer.activate()

    async def _reload(self) -> None:
        """While some of the jobs have not ended."""
        if len(self._done) < len(self._ids):
            await self._load()
        else:
            self._timer.deactivate()

    async def _load(self) -> None:
        waiting: list[JobRecord] = []
        problems: list[str] = []
        self._done = {}
        for identity in self._ids:
            try:
                record = await self._jobs.get(identity)
                if record.state is not JobState.DONE:
                    waiting.append(record)
                    continue
                response = await self._jobs.result(identity)
            except (NotFound, PenstockError, ConnectionError) as error:
                problems.append(str(error))
                continue
            by_scheme = {each.name: each for each in response.results}
            if not by_scheme:
                problems.append(f"{identity} is no prediction")
                continue
            chosen = by_scheme.get(results.SCHEME) or next(iter(by_scheme.values()))
            self._done[identity] = result_data.read_prediction(chosen)
        self._shown.clear()
        with self._shown:
            for text in problems:
                ui.label(text).classes("p-bad-text")
            for record in waiting:
                with ui.row().classes("p-card w-full items-center"):
                    ui.link(record.id, address(record.id)).classes("p-job-id")
                    text = f"{record.state} · {progress_text(record, utc_now())}"
                    ui.label(text).classes("p-muted p-small")
            if len(self._done) > 1:
                _show_comparison(self._done)
            elif not waiting:
                ui.label("Choose two or more predictions.").classes("p-muted")


def _show_comparison(found: Mapping[str, ResultPrediction]) -> None:
    rows = compared_samples(found)
    same = sum(len({_origin(each) for each in row.values() if each}) == 1 for row in rows.values())
    with ui.element("div").classes("p-figures"):
        figure(f"{same} / {len(rows)}", "samples with the same answer")
        for name, each in found.items():
            error = "" if each.error is None else f" · {each.error:.1%} wrong by the ids"
            figure(f"{each.predicted} / {len(each.samples)}", f"{name}{error}")
    with ui.column().classes("p-card w-full"):
        ui.label("Origin and confidence by model").classes("p-h3")
        ui.html(comparison_table(found), sanitize=False).classes("p-scroll")


def compared_samples(
    found: Mapping[str, ResultPrediction],
) -> dict[tuple[str, int], dict[str, ResultSample | None]]:
    """By sample, and the how manieth of its name: a data set may name two samples the same."""
    rows: dict[tuple[str, int], dict[str, ResultSample | None]] = {}
    for job, prediction in found.items():
        seen: dict[str, int] = {}
        for sample in prediction.samples:
            number = seen[sample.name] = seen.get(sample.name, 0) + 1
            row = rows.setdefault((sample.name, number), dict.fromkeys(found))
            row[job] = sample
    return rows


def comparison_table(found: Mapping[str, ResultPrediction]) -> str:
    """HTML; rows with different answers are marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in found)
    lines = []
    for (name, _), row in compared_samples(found).items():
        differs = len({_origin(each) for each in row.values()}) > 1
        style = " class='p-differs'" if differs else ""
        cells = "".join(_cell(each) for each in row.values())
        lines.append(f"<tr{style}><td class='p-whole'>{escape(name)}</td>{cells}</tr>")
    body = "".join(lines)
    return (
        f"<table class='p-table'><thead><tr><th>sample</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _origin(sample: ResultSample | None) -> str:
    return "" if sample is None else sample.origin


def _cell(sample: ResultSample | None) -> str:
    if sample is None:
        return "<td class='p-muted'>not in this job</td>"
    origin = sample.origin if sample.origin in (HUMAN, ANIMAL, UNDECIDED) else "unknown"
    return f"<td><span class='p-origin {origin}'>{origin}</span> {sample.confidence:.2f}</td>"
