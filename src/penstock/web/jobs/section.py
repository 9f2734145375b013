"""The section of jobs: its pages over a desk that is open while the dashboards run.

Jobs belong to nobody in particular: who sees one sees all, and may cancel them. So the pages and
the results are for operators, where there is a gate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from nicegui import ui

from penstock import store
from penstock.core.errors import NotFound
from penstock.jobs.http.desk import JobDesk
from penstock.jobs.service import Jobs
from penstock.web.jobs import drafting
from penstock.web.jobs.downloads import result_file
from penstock.web.jobs.feed import Feed
from penstock.web.jobs.job import JobView
from penstock.web.jobs.listing import Listing
from penstock.web.pages import OPERATOR, Download, Page, Section, Surroundings, Visit

_STYLES = '<link rel="stylesheet" href="/static/jobs.css">'


def section(around: Surroundings) -> Section:
    @asynccontextmanager
    async def opened() -> AsyncIterator[JobDesk]:
        with store.open(around.database, around.data) as database:
            async with Jobs(around.broker, database) as jobs:
                yield jobs

    return section_over(opened)


def section_over(opened: Callable[[], AbstractAsyncContextManager[JobDesk]]) -> Section:
    """Over any desk: `opened` is entered before the first page is asked for."""
    pages = _Pages(opened)
    return Section(
        "Jobs",
        (
            Page(
                "/jobs",
                "Jobs",
                "science",
                pages.board,
                "Hand in samples, see how far work is, look at what came of it.",
                OPERATOR,
            ),
            Page("/jobs/{id:path}", "Job", "science", pages.job, role=OPERATOR, listed=False),
        ),
        (Download("/results/{id:path}", result_file(pages.desk), OPERATOR),),
        pages.open,
    )


class _Pages:
    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[JobDesk]]) -> None:
        self._opened = opened
        self._desk: JobDesk | None = None
        self._feed: Feed | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._opened() as desk:
            self._desk, self._feed = desk, Feed(desk)
            async with self._feed.running():
                yield

    def desk(self) -> JobDesk:
        assert self._desk is not None
        return self._desk

    def feed(self) -> Feed:
        assert self._feed is not None
        return self._feed

    async def board(self, visit: Visit) -> None:
        ui.add_head_html(_STYLES)
        models = visit.query.get("models", "")
        drafts: dict[str, drafting.Drawable] = {
            "Predict": drafting.PredictDraft(self.desk(), models),
            "Build": drafting.BuildDraft(self.desk()),
            "Trial run": drafting.FakeDraft(self.desk()),
        }
        with ui.column().classes("p-card p-new gap-3"):
            with ui.tabs().props("dense no-caps inline-label align=left") as tabs:
                for name in drafts:
                    ui.tab(name)
            with ui.tab_panels(tabs, value="Predict", animated=False).classes("p-panels"):
                for name, draft in drafts.items():
                    with ui.tab_panel(name).classes("p-panel"):
                        await draft.draw()
        await Listing(self.desk(), self.feed()).load()

    async def job(self, visit: Visit) -> None:
        ui.add_head_html(_STYLES)
        try:
            record = await self.desk().get(visit.parameters["id"])
        except NotFound as error:
            _missing(str(error))
            return
        await JobView(self.desk(), self.feed(), record).load()


def _missing(text: str) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("search_off").classes("p-empty-icon")
        ui.label(f"{text[:1].upper()}{text[1:]}").classes("p-h2")
        ui.label("It may have been forgotten: jobs are kept for thirty days.").classes("p-muted")
        ui.link("All jobs", "/jobs").classes("p-accent")
