"""The dashboard section of jobs.

Every visitor sees all jobs and may cancel them, so the pages and results need the operator role
where the dashboards have a sign-in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from nicegui import ui

import penstock_store
from penstock.core.errors import NotFound
from penstock_jobs.service import JobService
from penstock_jobs.web import forms
from penstock_jobs.web.job_list import JobList
from penstock_jobs.web.job_page import JobView
from penstock_jobs.web.result_view import result_file
from penstock_store.dashboard.pages import (
    OPERATOR_ROLE,
    DashboardDownload,
    DashboardPage,
    DashboardSection,
    PageRequest,
    SectionContext,
)

_STYLES = '<link rel="stylesheet" href="/static/jobs/jobs.css">'


def section(context: SectionContext) -> DashboardSection:
    @asynccontextmanager
    async def open_jobs() -> AsyncIterator[JobService]:
        with penstock_store.open(context.database, context.data) as database:
            async with JobService(context.broker, database) as jobs:
                yield jobs

    return section_over(open_jobs)


def section_over(
    open_jobs: Callable[[], AbstractAsyncContextManager[JobService]],
) -> DashboardSection:
    """`open_jobs` is entered before the first page is requested."""
    pages = _Pages(open_jobs)
    return DashboardSection(
        "Jobs",
        (
            DashboardPage(
                "/jobs",
                "Jobs",
                "science",
                pages.board,
                "Submit samples, follow jobs, inspect results.",
                OPERATOR_ROLE,
            ),
            DashboardPage(
                "/jobs/{id:path}", "Job", "science", pages.job, role=OPERATOR_ROLE, in_menu=False
            ),
        ),
        (DashboardDownload("/results/{id:path}", result_file(pages.jobs), OPERATOR_ROLE),),
        Path(__file__).with_name("static"),
        pages.open,
    )


class _Pages:
    def __init__(self, open_jobs: Callable[[], AbstractAsyncContextManager[JobService]]) -> None:
        self._open_jobs = open_jobs
        self._jobs: JobService | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._open_jobs() as self._jobs:
            yield

    def jobs(self) -> JobService:
        assert self._jobs is not None
        return self._jobs

    async def board(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        models = visit.query.get("models", "")
        submit_forms: dict[str, forms.Drawable] = {
            "Predict": forms.PredictForm(self.jobs(), models),
            "Build": forms.BuildForm(self.jobs()),
            "Command": forms.CommandForm(self.jobs()),
            "Function": forms.CallForm(self.jobs()),
            "Trial run": forms.FakeForm(self.jobs()),
        }
        with ui.column().classes("p-card p-new gap-3"):
            with ui.tabs().props("dense no-caps inline-label align=left").classes("p-tabs") as tabs:
                for name in submit_forms:
                    ui.tab(name)
            with ui.tab_panels(tabs, value="Predict", animated=False).classes("p-panels"):
                for name, form in submit_forms.items():
                    with ui.tab_panel(name).classes("p-panel"):
                        await form.draw()
        await JobList(self.jobs()).load()

    async def job(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        try:
            record = await self.jobs().get(visit.parameters["id"])
        except NotFound as error:
            _missing(str(error))
            return
        await JobView(self.jobs(), record).load()


def _missing(text: str) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("search_off").classes("p-empty-icon")
        ui.label(f"{text[:1].upper()}{text[1:]}").classes("p-h2")
        ui.label("It may have expired: jobs are stored for thirty days.").classes("p-muted")
        ui.link("All jobs", "/jobs").classes("p-accent")
