"""The page of schedules: a form for a new one, and the list, which is updated live."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nicegui import background_tasks, ui

from penstock.core.errors import PenstockError
from penstock_jobs.errors import JobFormatError
from penstock_jobs.model import JobOptions
from penstock_jobs.schedule.repository import JobSchedule
from penstock_jobs.service import JobService
from penstock_jobs.web.job_row import address, span

_RELOAD_SECONDS: Final = 2.0
_EXAMPLE: Final = '{"type": "fake", "duration": 10}'
#: Of the choice between an interval and a cron expression.
_EVERY, _CRON = "every", "cron"


class SchedulePage:
    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._shown: list[JobSchedule] | None = None
        self._loading = asyncio.Lock()

    async def draw(self) -> None:
        with ui.column().classes("p-card w-full gap-3"):
            ui.label("Start jobs again and again").classes("p-h2")
            with ui.row().classes("w-full items-center"):
                self._name = ui.input("Name").props("outlined dense maxlength=100")
                timings = {_EVERY: "Every so many seconds", _CRON: "By a cron expression"}
                self._timing = ui.select(timings, value=_EVERY, label="Timing")
                self._timing.props("outlined dense options-dense").classes("p-choice-wide")
                self._every = ui.number("Seconds", value=900, min=1, max=366 * 86_400)
                self._cron = ui.input("Minute, hour, day, month, weekday", value="0 6 * * *")
                self._zone = ui.input("Time zone", value="UTC", placeholder="Europe/Madrid")
                self._unique = ui.input("Unique key").props("maxlength=255")
                for field in (self._every, self._cron, self._zone, self._unique):
                    field.props("outlined dense").classes("p-choice-wide")
                self._every.bind_visibility_from(self._timing, "value", value=_EVERY)
                for field in (self._cron, self._zone):
                    field.bind_visibility_from(self._timing, "value", value=_CRON)
            self._request = ui.textarea("Request, as JSON", value=_EXAMPLE)
            self._request.props("outlined dense autogrow").classes("w-full")
            button = ui.button("Save", icon="event_repeat", on_click=self._save)
            button.props("unelevated no-caps")
        self._list = ui.column().classes("p-card w-full gap-2")
        await self._load()
        ui.timer(_RELOAD_SECONDS, self._reload)

    async def _save(self) -> None:
        try:
            saved = await self._jobs.put_schedule(self._schedule())
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
            return
        ui.notify(f"{saved.id}: next at {_time(saved.next)}", type="positive")
        await self._load()

    def _schedule(self) -> JobSchedule:
        name = (self._name.value or "").strip()
        if not name:
            raise JobFormatError("a schedule needs a name")
        try:
            request = json.loads(self._request.value or "")
        except ValueError as error:
            raise JobFormatError(f"Request: {error}") from error
        if not isinstance(request, dict):
            raise JobFormatError("Request: must be a JSON object")
        is_cron = self._timing.value == _CRON
        return JobSchedule(
            name,
            json.dumps({**request, "id": name}).encode(),
            None if is_cron else float(self._every.value or 0),
            (self._cron.value or "").strip() if is_cron else None,
            (self._zone.value or "").strip() or "UTC",
            JobOptions(unique=(self._unique.value or "").strip() or None),
        )

    async def _reload(self) -> None:
        try:
            await self._load()
        except (PenstockError, ConnectionError):
            return  # tried again

    async def _load(self) -> None:
        """The list is drawn again if it has changed: a button stays while it is clicked."""
        async with self._loading:
            found = await self._jobs.list_schedules()
            if found != self._shown:
                self._shown = found
                self._draw_list(found)

    def _draw_list(self, schedules: Sequence[JobSchedule]) -> None:
        self._list.clear()
        with self._list:
            ui.label("Schedules").classes("p-h2")
            if not schedules:
                ui.label("None yet.").classes("p-muted")
            for each in schedules:
                self._draw_schedule(each)

    def _draw_schedule(self, schedule: JobSchedule) -> None:
        name = schedule.id
        with ui.row().classes("items-center w-full").props(f"data-schedule={_quoted(name)}"):
            with ui.element("div").classes("p-job-name"):
                ui.label(name).classes("p-job-id p-ellipsis")
                owner = f" · {schedule.owner}" if schedule.owner else ""
                ui.label(timing_text(schedule) + owner).classes("p-muted p-small")
            ui.space()
            when = "paused" if schedule.paused else f"next at {_time(schedule.next)}"
            ui.label(when).classes("p-muted p-small p-number")
            if schedule.last_job:
                ui.link("last job", address(schedule.last_job)).classes("p-accent")
            pause = partial(self._jobs.pause_schedule, name, paused=not schedule.paused)
            self._button("Resume" if schedule.paused else "Pause", pause)
            self._button("Remove", partial(self._jobs.remove_schedule, name))

    def _button(self, text: str, act: Callable[[], Awaitable[object]]) -> None:
        async def clicked() -> None:
            try:
                await act()
            except (PenstockError, ConnectionError) as error:
                ui.notify(str(error), type="negative")
            # The button is one of those that are drawn again.
            background_tasks.create(self._load(), name="schedules")

        ui.button(text, on_click=clicked).props("flat dense no-caps")


def timing_text(schedule: JobSchedule) -> str:
    if schedule.cron is None:
        return f"every {span(schedule.every or 0)}"
    return f"{schedule.cron} · {schedule.zone}"


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _quoted(name: str) -> str:
    return json.dumps(name)
