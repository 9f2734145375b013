"""The page of one job: how far it is, what happened, what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from nicegui import background_tasks, context, ui

from penstock.core.errors import NotFound, PenstockError
from penstock_jobs.model import JobEvent, JobRecord, JobState
from penstock_jobs.service import JobBackend
from penstock_jobs.web import job_row, result_view
from penstock_jobs.web.feed import PageFeed
from penstock_jobs.web.job_row import RETRYABLE_STATES, JobBar, StateBadge, notify_result


class JobView:
    """One visitor's view of one job."""

    def __init__(self, backend: JobBackend, feed: PageFeed, record: JobRecord) -> None:
        self._backend = backend
        self._record = record
        self._draw(record)
        self._show(record)
        context.client.on_delete(feed.listen(self._heard))

    async def load(self) -> None:
        """What is not in the record: events and, at the end, the result."""
        self._tell(await self._backend.events(self._record.id))
        self._result.clear()
        if self._record.state is not JobState.DONE:
            return
        try:
            response = await self._backend.result(self._record.id)
        except NotFound:
            with self._result:
                ui.label("What came of it is no longer kept.").classes("p-muted")
            return
        with self._result:
            await result_view.show_result(response)
        self._files.clear()
        with self._files:
            result_view.downloads(response)
            if response.models:
                target = f"/jobs?models={response.id}"
                ui.link("Predict with these models", target).classes("p-accent")

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
                self._standing = ui.label().classes("p-muted p-number")
                ui.space()
                self._cancel = ui.button("Cancel", icon="close", on_click=self._cancelled)
                self._retry = ui.button("Try again", icon="replay", on_click=self._retried)
                for button in (self._cancel, self._retry):
                    button.props('outline dense no-caps padding="xs md"').classes("p-act")
            self._error = ui.element("div").classes("w-full")
            self._facts = ui.html("", sanitize=False).classes("p-facts")
            self._files = ui.row().classes("items-center p-files")
        self._result = ui.column().classes("w-full gap-4 p-result")
        with ui.expansion("What happened", value=not record.state.final).classes(
            "p-card p-happened"
        ):
            self._events = ui.html("", sanitize=False).classes("w-full")
        ui.timer(1.0, self._tick)

    def _show(self, record: JobRecord) -> None:
        self._record = record
        self._pill.show(record.state)
        self._bar.show(record)
        self._cancel.set_visibility(not record.state.final)
        self._retry.set_visibility(record.state in RETRYABLE_STATES)
        self._error.clear()
        if record.error and record.state not in (JobState.DONE, JobState.CANCELLED):
            with self._error:
                text = escape(record.error.strip())
                ui.html(f"<pre class='p-output p-wrong'>{text}</pre>", sanitize=False)
        self._tick()

    def _tick(self) -> None:
        now = datetime.now(UTC)
        self._standing.set_text(job_row.progress_text(self._record, now))
        self._facts.set_content(_facts(self._record, now))

    def _tell(self, events: Sequence[JobEvent]) -> None:
        lines = "".join(_line(event) for event in _notable_events(events))
        self._events.set_content(f"<ol class='p-events'>{lines}</ol>")

    def _heard(self, news: Sequence[JobRecord]) -> None:
        for record in news:
            if record.id == self._record.id:
                turned = record.state is not self._record.state
                self._show(record)
                if turned:
                    background_tasks.create(self._reload(), name="a job turned")

    async def _reload(self) -> None:
        try:
            await self.load()
        except (PenstockError, ConnectionError) as error:
            with self._result:
                ui.label(str(error)).classes("p-bad-text")

    async def _cancelled(self) -> None:
        await notify_result(lambda: self._backend.cancel(self._record.id), "It is being cancelled")

    async def _retried(self) -> None:
        await notify_result(lambda: self._backend.retry(self._record.id), "It is tried again")


def _facts(record: JobRecord, now: datetime) -> str:
    facts = {"submitted": job_row.ago(record.submitted, now)}
    if record.start is not None:
        facts["begun"] = job_row.ago(record.start, now)
    if record.state is JobState.RUNNING and record.end is not None:
        facts["expected end"] = f"{record.end.astimezone(UTC):%H:%M:%S} UTC"
    if record.attempts > 1:
        facts["attempts"] = str(record.attempts)
    if record.worker:
        facts["worker"] = record.worker
    if record.priority:
        facts["priority"] = str(record.priority)
    return "".join(
        f"<span><b>{escape(name)}</b> {escape(value)}</span>" for name, value in facts.items()
    )


def _notable_events(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Of a row of reports of progress the last: what else happened should not drown in them."""
    return [
        event
        for event, following in zip(events, [*events[1:], None], strict=True)
        if following is None or following.state is not event.state or event.text
    ]


def _line(event: JobEvent) -> str:
    text = escape(event.text.strip().partition("\n")[0])
    share = f" · {event.progress:.0%}" if event.state is JobState.RUNNING else ""
    look, _ = job_row.STATES[event.state]
    return (
        f"<li class='{look}'><time>{event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}</time>"
        f"<span>{event.state.value}{share}</span><span class='p-muted'>{text}</span></li>"
    )
