"""The dashboard section of jobs.

Without accounts of its own every visitor sees all jobs and may cancel them, so with the sign-in of
another section the pages and results need the operator role.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from nicegui import ui

import penstock_store
from penstock.cli.client_options import parse_duration
from penstock.core.errors import NotFound
from penstock_jobs.history.repository import RETENTION_SECONDS
from penstock_jobs.service import JobService
from penstock_jobs.users.authenticator import JobsAuthenticator
from penstock_jobs.users.repository import JobRole, JobUser, UserRepository
from penstock_jobs.users.user_jobs import UserJobs
from penstock_jobs.web import forms
from penstock_jobs.web.comparison import ComparisonPage, parse_ids
from penstock_jobs.web.dataset_page import DatasetPage
from penstock_jobs.web.job_list import JobList
from penstock_jobs.web.job_page import JobView
from penstock_jobs.web.result_view import result_file
from penstock_jobs.web.schedule_page import SchedulePage
from penstock_jobs.web.user_pages import AuditPage, TokenPage
from penstock_jobs.web.worker_list import WorkerList
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
            async with JobService(context.broker, database, retention=_retention()) as jobs:
                yield jobs

    return section_over(open_jobs)


def _retention() -> float:
    """That of the worker and the API, whose option `--keep` has this variable, too."""
    text = os.environ.get("PENSTOCK_JOBS_KEEP")
    return parse_duration(text) if text else RETENTION_SECONDS


def gated(context: SectionContext) -> tuple[DashboardSection, JobsAuthenticator]:
    """With the accounts of `penstock job user`: each user sees what their role allows."""
    authenticator = JobsAuthenticator()

    @asynccontextmanager
    async def open_jobs() -> AsyncIterator[JobService]:
        with penstock_store.open(context.database, context.data) as database:
            authenticator.users = UserRepository(database)
            async with JobService(context.broker, database, retention=_retention()) as jobs:
                yield jobs

    return section_over(open_jobs, authenticator), authenticator


def section_over(
    open_jobs: Callable[[], AbstractAsyncContextManager[JobService]],
    authenticator: JobsAuthenticator | None = None,
) -> DashboardSection:
    """`open_jobs` is entered before the first page is requested. With an authenticator, all its
    users may open the pages, which show what their roles allow."""
    pages = SectionPages(open_jobs, authenticator)
    role = OPERATOR_ROLE if authenticator is None else None
    return DashboardSection(
        "Jobs",
        (
            DashboardPage(
                "/jobs",
                "Jobs",
                "science",
                pages.board,
                "Submit samples, follow jobs, inspect results.",
                role,
            ),
            DashboardPage(
                "/workers", "Workers", "dns", pages.workers, "What each worker runs.", role
            ),
            DashboardPage(
                "/datasets",
                "Data sets",
                "table_rows",
                pages.datasets,
                "Enter samples, and save them for predictions.",
                role,
            ),
            DashboardPage(
                "/compare",
                "Compare",
                "compare_arrows",
                pages.compare,
                "Predictions of the same samples by several models.",
                role,
            ),
            DashboardPage(
                "/schedules",
                "Schedules",
                "event_repeat",
                pages.schedules,
                "Start jobs at intervals or by the calendar.",
                OPERATOR_ROLE,
            ),
            *(() if authenticator is None else _user_pages(pages)),
            DashboardPage("/jobs/{id:path}", "Job", "science", pages.job, role=role, in_menu=False),
            DashboardPage(
                "/workers/{name:path}", "Worker", "dns", pages.worker, role=role, in_menu=False
            ),
        ),
        (DashboardDownload("/results/{id:path}", result_file(pages.jobs), role),),
        Path(__file__).with_name("static"),
        pages.open,
    )


def _user_pages(pages: SectionPages) -> tuple[DashboardPage, ...]:
    return (
        DashboardPage(
            "/tokens", "Access tokens", "key", pages.tokens, "Let programs use the HTTP API."
        ),
        DashboardPage(
            "/audit",
            "Audit log",
            "history",
            pages.audit,
            "Who submitted, cancelled or changed what.",
            OPERATOR_ROLE,
        ),
    )


class SectionPages:
    def __init__(
        self,
        open_jobs: Callable[[], AbstractAsyncContextManager[JobService]],
        authenticator: JobsAuthenticator | None,
    ) -> None:
        self._open_jobs = open_jobs
        self._authenticator = authenticator
        self._jobs: JobService | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._open_jobs() as self._jobs:
            yield

    def jobs(self, visit: PageRequest) -> JobService:
        """As the visitor may see and change them."""
        assert self._jobs is not None
        if self._authenticator is None:
            return self._jobs
        role = next(each for each in JobRole if each in visit.user.roles)
        user = JobUser(visit.user.name, role)
        return UserJobs(self._jobs, user, self._authenticator.users)

    async def board(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        jobs = self.jobs(visit)
        if jobs.may_submit():
            await _draw_forms(jobs, visit)
        await JobList(jobs).load()

    async def workers(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        await WorkerList(self.jobs(visit)).load()

    async def worker(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        await WorkerList(self.jobs(visit), visit.parameters["name"]).load()

    async def datasets(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        await DatasetPage(self.jobs(visit)).draw(visit)

    async def compare(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        await ComparisonPage(self.jobs(visit), parse_ids(visit.query.get("jobs", ""))).draw()

    async def schedules(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        await SchedulePage(self.jobs(visit)).draw()

    async def tokens(self, visit: PageRequest) -> None:
        assert self._authenticator is not None
        ui.add_head_html(_STYLES)
        await TokenPage(self._authenticator.users, visit.user.name).draw()

    async def audit(self, visit: PageRequest) -> None:
        assert self._authenticator is not None
        ui.add_head_html(_STYLES)
        await AuditPage(self._authenticator.users, visit.query.get("job", "")).draw()

    async def job(self, visit: PageRequest) -> None:
        ui.add_head_html(_STYLES)
        try:
            record = await self.jobs(visit).get(visit.parameters["id"])
        except NotFound as error:
            _missing(str(error))
            return
        await JobView(self.jobs(visit), record).load()


async def _draw_forms(jobs: JobService, visit: PageRequest) -> None:
    models = visit.query.get("models", "")
    submit_forms: dict[str, forms.Drawable] = {
        "Predict": forms.PredictForm(jobs, models, visit.query.get("dataset", "")),
        "Build": forms.BuildForm(jobs),
        "Command": forms.CommandForm(jobs),
        "Function": forms.CallForm(jobs, "call"),
        "Spark": forms.CallForm(jobs, "spark"),
        "Trial run": forms.FakeForm(jobs),
    }
    with ui.column().classes("p-card p-new gap-3"):
        with ui.tabs().props("dense no-caps inline-label align=left").classes("p-tabs") as tabs:
            for name in submit_forms:
                ui.tab(name)
        with ui.tab_panels(tabs, value="Predict", animated=False).classes("p-panels"):
            for name, form in submit_forms.items():
                with ui.tab_panel(name).classes("p-panel"):
                    await form.draw()


def _missing(text: str) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("search_off").classes("p-empty-icon")
        ui.label(f"{text[:1].upper()}{text[1:]}").classes("p-h2")
        ui.label("It may have expired.").classes("p-muted")
        ui.link("All jobs", "/jobs").classes("p-accent")
