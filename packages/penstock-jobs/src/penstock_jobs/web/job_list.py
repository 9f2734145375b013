"""The list of jobs: newest first, filtered by state and id, updated live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from nicegui import background_tasks, context, ui

from penstock.core.errors import PenstockError
from penstock_jobs.model import JobPage, JobRecord, JobState
from penstock_jobs.service import JobService
from penstock_jobs.web.job_row import JobRow, follow_changes, notify_result

PAGE: Final = 15
#: The shortest interval between two queries.
_RELOAD_SECONDS: Final = 0.7
_TICK_SECONDS: Final = 1.0
_ANY: Final = "all"
_SHOWN: Final = (JobState.RUNNING, JobState.WAITING, JobState.DONE, JobState.FAILED)


class JobList:
    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._rows: dict[str, JobRow] = {}
        self._page = 1
        self._text = ""
        self._state: JobState | None = None
        self._stale = asyncio.Event()
        self._draw()
        follow_changes(jobs, self._update)
        reload = background_tasks.create(self._reload_stale(), name="job list")
        context.client.on_delete(lambda: reload.cancel())

    async def load(self) -> None:
        counts = await self._jobs.counts()
        for state, figure in self._figures.items():
            figure.set_text(f"{counts.get(state, 0):,}")
        can_replay = self._jobs.may_operate() and bool(counts.get(JobState.FAILED))
        self._replay.set_visibility(can_replay)
        page = await self._jobs.list(self._page, PAGE, self._state, None, self._text or None)
        self._show(page)

    def _draw(self) -> None:
        self._figures: dict[JobState, ui.label] = {}
        with ui.element("div").classes("p-figures"):
            for state in _SHOWN:
                with ui.element("div").classes("p-figure p-card-figure"):
                    figure = ui.label("–").classes("p-figure-value")
                    self._figures[state] = figure.props(f"data-count={state}")
                    ui.label(state).classes("p-figure-name")
        with ui.column().classes("p-card p-list gap-0"):
            with ui.row().classes("p-list-head"):
                ui.label("Jobs").classes("p-h2")
                ui.space()
                self._replay = ui.button("Retry all failed", icon="replay")
                self._replay.on_click(self._replay_all).props("flat dense no-caps")
                self._replay.set_visibility(False)
                options = {_ANY: "All", **{state.value: state.value for state in JobState}}
                ui.select(
                    options,
                    label="State",
                    value=_ANY,
                    on_change=lambda e: self._filter_state(e.value),
                ).props("outlined dense options-dense").classes("p-choice p-unlabelled")
                search = ui.input(placeholder="Find by id")
                search.on_value_change(lambda e: self._filter_text(e.value))
                search.props('outlined dense clearable debounce=300 aria-label="Find by id"')
                search.classes("p-search")
            self._list = ui.element("div").classes("p-jobs").props("aria-live=polite")
            with ui.row().classes("p-list-foot") as self._foot:
                self._back = ui.button(icon="chevron_left", on_click=lambda: self._change_page(-1))
                self._where = ui.label().classes("p-muted p-small p-number")
                self._on = ui.button(icon="chevron_right", on_click=lambda: self._change_page(1))
                for button, name in ((self._back, "Newer"), (self._on, "Older")):
                    button.props(f"flat round dense aria-label={name}")
        ui.timer(_TICK_SECONDS, self._tick)

    def _show(self, page: JobPage) -> None:
        names = [record.id for record in page.records]
        if names and names == list(self._rows):
            for record in page.records:
                self._rows[record.id].show(record)
        else:
            self._list.clear()
            with self._list:
                self._rows = {
                    record.id: JobRow(record, self._cancel, self._retry, self._jobs.may_change)
                    for record in page.records
                }
                if not page.records:
                    filtered = self._state is not None or bool(self._text)
                    _empty(filtered, self._jobs.may_submit())
        pages = max(-(-page.total // PAGE), 1)
        self._foot.set_visibility(pages > 1)
        self._where.set_text(f"page {self._page} of {pages:,} · {page.total:,} jobs")
        self._back.set_enabled(self._page > 1)
        self._on.set_enabled(self._page < pages)

    def _update(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            row = self._rows.get(record.id)
            if row is None or row.record.state is not record.state:
                self._stale.set()  # the counts or the list have changed
            if row is not None:
                row.show(record)

    async def _reload_stale(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self.load()
            except (PenstockError, ConnectionError):
                self._stale.set()
            await asyncio.sleep(_RELOAD_SECONDS)

    def _tick(self) -> None:
        for row in self._rows.values():
            row.tick()

    async def _filter_state(self, state: str) -> None:
        self._state = None if state == _ANY else JobState(state)
        self._page = 1
        await self.load()

    async def _filter_text(self, text: str | None) -> None:
        self._text = (text or "").strip()
        self._page = 1
        await self.load()

    async def _change_page(self, pages: int) -> None:
        self._page = max(self._page + pages, 1)
        await self.load()

    async def _cancel(self, id: str) -> None:  # noqa: A002 - as records have it
        await notify_result(lambda: self._jobs.cancel(id), f"{id} is being cancelled")

    async def _retry(self, id: str) -> None:  # noqa: A002
        await notify_result(lambda: self._jobs.retry(id), f"{id} is retried")

    async def _replay_all(self) -> None:
        await notify_result(lambda: self._jobs.replay(), "All failed jobs are retried")


def _empty(filtered: bool, may_submit: bool) -> None:
    with ui.column().classes("p-empty w-full"):
        ui.icon("inbox").classes("p-empty-icon")
        ui.label("No matching jobs" if filtered else "No jobs yet").classes("p-h3")
        if filtered:
            ui.label("No job has this state and id.").classes("p-muted")
        elif may_submit:
            text = "Submit samples above, or try it with synthetic data."
            ui.label(text).classes("p-muted")
