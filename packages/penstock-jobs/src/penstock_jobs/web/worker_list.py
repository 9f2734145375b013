"""The page of the workers: what each runs, updated live."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_jobs.service import JobService
from penstock_jobs.web.job_row import address, kind_name, progress_text, span

_RELOAD_SECONDS: Final = 1.0
#: Jobs of a worker that are shown.
_SHOWN: Final = 50


class WorkerList:
    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._list = ui.column().classes("w-full gap-4")
        ui.timer(_RELOAD_SECONDS, self._reload)

    async def _reload(self) -> None:
        try:
            await self.load()
        except (PenstockError, ConnectionError):
            return  # tried again

    async def load(self) -> None:
        workers = await self._jobs.workers()
        now = datetime.now(UTC)
        self._list.clear()
        with self._list:
            if not workers:
                ui.label("No worker runs a job at the moment.").classes("p-card p-muted")
            for name, records in workers.items():
                with ui.column().classes("p-card w-full gap-2").props(f'data-worker="{name}"'):
                    count = "1 job" if len(records) == 1 else f"{len(records):,} jobs"
                    ui.label(f"{name} · {count}").classes("p-h3")
                    for record in records[:_SHOWN]:
                        with ui.row().classes("items-center w-full"):
                            ui.link(record.id, address(record.id)).classes("p-job-id p-ellipsis")
                            ui.label(kind_name(record.kind)).classes("p-muted p-small")
                            ui.space()
                            since = (now - record.start).total_seconds() if record.start else 0.0
                            text = f"{progress_text(record, now)} · for {span(since)}"
                            ui.label(text).classes("p-muted p-small p-number")
                    if len(records) > _SHOWN:
                        ui.label(f"and {len(records) - _SHOWN:,} more").classes("p-muted p-small")
