"""The section of jobs: its pages over a desk that is open while the dashboards run.

Jobs belong to nobody in particular: who sees one sees all, and may cancel them. So the pages and
the results are for operators, where there is a gate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from nicegui import ui

import penstock_store
from penstock.core.errors import NotFound
from penstock_jobs.service import JobBackend, JobService
from penstock_jobs.web import forms
from penstock_jobs.web.feed import PageFeed
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


def section(around: SectionContext) -> DashboardSection:
    @asynccontextmanager
    async def opened() -> AsyncIterator[JobBackend]:
        with penstock_store.open(around.database, around.data) as database:
            async with JobService(around.broker, database) as jobs:
                yield jobs

    return section_over(opened)


def section_over(opened: Callable[[], AbstractAsyncContextManager[JobBackend]]) -> DashboardSection:
    """Over any desk: `opened` is entered before the first page is asked for."""
    pages = _Pages(opened)
    return DashboardSection(
        "Jobs",
        (
            DashboardPage(
                "/jobs",
                "Jobs",
                "science",
                pages.board,
                "Hand in samples, see how far work is, look at what came of it.",
                OPERATOR_ROLE,
            ),
            DashboardPage(
                "/jobs/{id:path}", "Job", "science", pages.job, role=OPERATOR_ROLE, listed=False
            ),
        ),
        (DashboardDownload("/results/{id:path}", result_file(pages.backend), OPERATOR_ROLE),),
        Path(__file__).with_name("static"),
        pages.open,
    )


class _Pages:
    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[JobBackend]]) -> None:
        self._opened = opened
        self._backend: JobBackend | None = None
        self._feed: PageFeed | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._opened() as backend:
            self._backend, self._feed = backend, PageFeed(backend)
            async with self._feed.running():
                yield

    def backend(self) -> JobBackend:
        assert self._backend is not None
        return self._backend

    def feed(self) -> PageFeed:
        assert self._feed is not None
        return self._feed

    async def board(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        models = visit.query.get("models", "")
        drafts: dict[str, forms.Drawable] = {
            "Predict": forms.PredictForm(self.backend(), models),
            "Build": forms.BuildForm(self.backend()),
            "Trial run": forms.FakeForm(self.backend()),
        }
        with ui.column().classes("p-card p-new gap-3"):
            with ui.tabs().props("dense no-caps inline-label align=left") as tabs:
                for name in drafts:
                    ui.tab(name)
            with ui.tab_panels(tabs, value="Predict", animated=False).classes("p-panels"):
                for name, draft in drafts.items():
                    with ui.tab_panel(name).classes("p-panel"):
                        await draft.draw()
        await JobList(self.backend(), self.feed()).load()

    async def job(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        try:
            record = await self.backend().get(visit.parameters["id"])
        except NotFound as error:
            _missing(str(error))
            return
        await JobView(self.backend(), self.feed(), record).load()


def _missing(text: str) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("search_off").classes("p-empty-icon")
        ui.label(f"{text[:1].upper()}{text[1:]}").classes("p-h2")
        ui.label("It may have been forgotten: jobs are kept for thirty days.").classes("p-muted")
        ui.link("All jobs", "/jobs").classes("p-accent")
