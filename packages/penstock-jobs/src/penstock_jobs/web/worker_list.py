"""The page of the workers, and that of one: what each runs, updated live."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_jobs.service import JobService
from penstock_jobs.web.job_row import (
    address,
    kind_name,
    progress_text,
    span,
    worker_address,
)

_RELOAD_SECONDS: Final = 1.0
#: Jobs that are shown of each worker, and on the page of one.
_SHOWN: Final = 20
_SHOWN_OF_ONE: Final = 200


class WorkerList:
    def __init__(self, jobs: JobService, name: str = "") -> None:
        """Of one worker, if it is named."""
        self._jobs = jobs
        self._name = name
        self._list = ui.column().classes("w-full gap-4")
        ui.timer(_RELOAD_SECONDS, self._reload)

    async def _reload(self) -> None:
        try:
            await self.load()
        except (PenstockError, ConnectionError):
            return  # tried again

    async def load(self) -> None:
        workers = await self._jobs.workers()
        if self._name:
            workers = {self._name: workers.get(self._name, ())}
        shown = _SHOWN_OF_ONE if self._name else _SHOWN
        now = datetime.now(UTC)
        self._list.clear()
        with self._list:
            if not workers:
                ui.label("No worker runs a job at the moment.").classes("p-card p-muted")
            for name, records in workers.items():
                with (
                    ui.column().classes("p-card w-full gap-2").props(f'data-worker="{quote(name)}"')
                ):
                    count = "1 job" if len(records) == 1 else f"{len(records):,} jobs"
                    with ui.row().classes("items-center"):
                        ui.link(name, worker_address(name)).classes("p-h3 p-ellipsis")
                        ui.label(count).classes("p-muted")
                    for record in records[:shown]:
                        with ui.row().classes("items-center w-full"):
                            ui.link(record.id, address(record.id)).classes("p-job-id p-ellipsis")
                            ui.label(kind_name(record.kind)).classes("p-muted p-small")
                            ui.space()
                            since = (now - record.start).total_seconds() if record.start else 0.0
                            text = f"{progress_text(record, now)} · for {span(since)}"
                            ui.label(text).classes("p-muted p-small p-number")
                    if len(records) > shown:
                        ui.label(f"and {len(records) - shown:,} more").classes("p-muted p-small")
