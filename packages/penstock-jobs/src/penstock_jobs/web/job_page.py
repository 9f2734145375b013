"""The page of one job: progress, events, result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from nicegui import background_tasks, ui

from penstock.core.errors import NotFound, PenstockError
from penstock_jobs.model import JobEvent, JobOutput, JobRecord, JobState
from penstock_jobs.service import JobService
from penstock_jobs.web import job_row, result_view
from penstock_jobs.web.comparison import comparison_address
from penstock_jobs.web.job_row import (
    RETRYABLE_STATES,
    JobBar,
    StateBadge,
    follow_changes,
    notify_result,
)

#: Characters.
_OUTPUT_SHOWN: Final = 100_000


class JobView:
    def __init__(self, jobs: JobService, record: JobRecord) -> None:
        self._jobs = jobs
        self._record = record
        self._draw(record)
        self._show(record)
        follow_changes(jobs, self._update)

    async def load(self) -> None:
        """Events and, at the end, the result."""
        await self._output.load()
        self._show_events(await self._jobs.events(self._record.id))
        self._result.clear()
        if self._record.state is not JobState.DONE:
            return
        try:
            response = await self._jobs.result(self._record.id)
        except NotFound:
            with self._result:
                ui.label("The result has expired.").classes("p-muted")
            return
        with self._result:
            await result_view.show_result(response)
        self._files.clear()
        with self._files:
            result_view.downloads(response)
            if response.models and self._jobs.may_submit():
                target = f"/jobs?models={response.id}"
                ui.link("Predict with these models", target).classes("p-accent")
            if response.results:
                target = comparison_address([response.id])
                ui.link("Compare with other predictions", target).classes("p-accent")

    def _draw(self, record: JobRecord) -> None:
        with ui.column().classes("p-card p-one gap-3"):
            with ui.row().classes("items-center w-full no-wrap"):
                ui.icon(job_row.kind_icon(record.kind)).classes("p-job-icon")
                with ui.element("div").classes("p-job-name"):
                    ui.label(record.id).classes("p-h2 p-ellipsis")
                    ui.label(job_row.kind_name(record.kind)).classes("p-muted p-small")
                ui.space()
                self._pill = StateBadge()
            self._bar = JobBar()
            with ui.row().classes("items-center w-full"):
                self._progress = ui.label().classes("p-muted p-number")
                ui.space()
                self._cancel = ui.button("Cancel", icon="close", on_click=self._cancelled)
                self._retry = ui.button("Retry", icon="replay", on_click=self._retried)
                for button in (self._cancel, self._retry):
                    button.props('outline dense no-caps padding="xs md"').classes("p-act")
            self._error = ui.element("div").classes("w-full")
            self._facts = ui.html("", sanitize=False).classes("p-facts")
            self._files = ui.row().classes("items-center p-files")
        self._output = JobOutputView(self._jobs, record.id)
        self._result = ui.column().classes("w-full gap-4 p-result")
        with ui.expansion("Events", value=not record.state.final).classes("p-card p-happened"):
            self._events = ui.html("", sanitize=False).classes("w-full")
        ui.timer(1.0, self._tick)

    def _show(self, record: JobRecord) -> None:
        self._record = record
        self._pill.show(record.state)
        self._bar.show(record)
        changeable = self._jobs.may_change(record)
        self._cancel.set_visibility(changeable and not record.state.final)
        self._retry.set_visibility(changeable and record.state in RETRYABLE_STATES)
        self._error.clear()
        if record.error and record.state not in (JobState.DONE, JobState.CANCELLED):
            with self._error:
                text = escape(record.error.strip())
                ui.html(f"<pre class='p-output p-wrong'>{text}</pre>", sanitize=False)
        self._tick()

    def _tick(self) -> None:
        now = datetime.now(UTC)
        self._progress.set_text(job_row.progress_text(self._record, now))
        self._facts.set_content(_facts(self._record, now))

    def _show_events(self, events: Sequence[JobEvent]) -> None:
        lines = "".join(_line(event) for event in _notable_events(events))
        self._events.set_content(f"<ol class='p-events'>{lines}</ol>")

    def _update(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            if record.id == self._record.id:
                state_changed = record.state is not self._record.state
                self._show(record)
                if state_changed:
                    background_tasks.create(self._reload(), name="job page")
                elif record.state is JobState.RUNNING:
                    background_tasks.create(self._output.load(), name="job output")

    async def _reload(self) -> None:
        try:
            await self.load()
        except (PenstockError, ConnectionError) as error:
            with self._result:
                ui.label(str(error)).classes("p-bad-text")

    async def _cancelled(self) -> None:
        await notify_result(
            lambda: self._jobs.cancel(self._record.id), "The job is being cancelled"
        )

    async def _retried(self) -> None:
        await notify_result(lambda: self._jobs.retry(self._record.id), "The job is retried")


class JobOutputView:
    """What the job prints, as it prints it; of much output the end."""

    def __init__(self, jobs: JobService, identity: str) -> None:
        self._jobs = jobs
        self._id = identity
        self._seen = JobOutput()
        self._text = ""
        self._loading = asyncio.Lock()
        with ui.column().classes("p-card w-full gap-2") as self._card:
            ui.label("Output").classes("p-h3")
            self._shown = ui.html("", sanitize=False).classes("w-full").props("data-output")
        self._card.set_visibility(False)

    async def load(self) -> None:
        async with self._loading:
            found = await self._jobs.output(self._id, self._seen)
            if not found.text:
                return
            before = self._text if found.attempt == self._seen.attempt else ""
            self._seen = found
            self._text = (before + found.text)[-_OUTPUT_SHOWN:]
        self._shown.set_content(f"<pre class='p-output'>{escape(self._text)}</pre>")
        self._card.set_visibility(True)


def _facts(record: JobRecord, now: datetime) -> str:
    facts = {"submitted": job_row.ago(record.submitted, now)}
    if record.start is not None:
        facts["started"] = job_row.ago(record.start, now)
    if record.state is JobState.RUNNING and record.end is not None:
        facts["expected end"] = f"{record.end.astimezone(UTC):%H:%M:%S} UTC"
    if record.attempts > 1:
        facts["attempts"] = str(record.attempts)
    if record.owner:
        facts["submitted by"] = record.owner
    if record.priority:
        facts["priority"] = str(record.priority)
    texts = {name: escape(value) for name, value in facts.items()}
    if record.worker:
        target = job_row.worker_address(record.worker)
        texts["worker"] = f'<a href="{target}">{escape(record.worker)}</a>'
    return "".join(f"<span><b>{escape(name)}</b> {text}</span>" for name, text in texts.items())


def _notable_events(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Of consecutive progress events only the last."""
    return [
        event
        for event, following in zip(events, [*events[1:], None], strict=True)
        if following is None or following.state is not event.state or event.text
    ]


def _line(event: JobEvent) -> str:
    text = escape(event.text.strip().partition("\n")[0])
    share = f" · {event.progress:.0%}" if event.state is JobState.RUNNING else ""
    style, _ = job_row.STATES[event.state]
    return (
        f"<li class='{style}'><time>{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}</time>"
        f"<span>{event.state.value}{share}</span><span class='p-muted'>{text}</span></li>"
    )
