"""A job in the list, and what both job pages share: states, durations, live updates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from nicegui import background_tasks, context, ui

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.history.feed import JobChangeWatcher
from penstock_jobs.model import JobRecord, JobState
from penstock_jobs.service import JobService

log = get_logger(__name__)

JobAction = Callable[[str], Awaitable[None]]
RETRYABLE_STATES = (JobState.FAILED, JobState.CANCELLED)
_UPDATE_SECONDS: Final = 0.15
_EMPTY_STATES = (JobState.CANCELLED, JobState.REFUSED)


def address(id: str) -> str:  # noqa: A002 - as records have it
    return f"/jobs/{quote(id)}"


def worker_address(name: str) -> str:
    return f"/workers/{quote(name)}"


class StateBadge:
    def __init__(self) -> None:
        with ui.element("span").classes("p-pill").props("role=status") as self._pill:
            self._icon = ui.icon("schedule")
            self._word = ui.label()

    def show(self, state: JobState) -> None:
        style, icon = STATES[state]
        self._pill.classes(replace=f"p-pill {style}")
        self._icon.set_name(icon)
        self._word.set_text(state.value)


class JobBar:
    """Progress; empty for a job that waits or has no result."""

    def __init__(self) -> None:
        self._bar = ui.linear_progress(value=0.0, show_value=False, size="6px")
        self._bar.props("rounded track-color=transparent").classes("p-bar")

    def show(self, record: JobRecord) -> None:
        colour = {JobState.DONE: "positive", JobState.FAILED: "negative"}.get(record.state)
        self._bar.props(f"color={colour or 'primary'}")
        # The final response has progress 1, whatever the outcome.
        self._bar.set_value(0.0 if record.state in _EMPTY_STATES else record.progress)


class JobRow:
    def __init__(
        self,
        record: JobRecord,
        cancel: JobAction,
        retry: JobAction,
        may_change: Callable[[JobRecord], bool],
    ) -> None:
        self.record = record
        self._may_change = may_change
        with ui.element("div").classes("p-job").props(f'data-job="{quote(record.id)}"'):
            ui.icon(kind_icon(record.kind)).classes("p-job-icon")
            with ui.element("div").classes("p-job-name"):
                ui.link(record.id, address(record.id)).classes("p-job-id p-ellipsis")
                self._about = ui.label().classes("p-muted p-small p-ellipsis")
            with ui.element("div").classes("p-job-progress"):
                self._bar = JobBar()
                self._progress = ui.label().classes("p-muted p-small p-number p-ellipsis")
            with ui.element("div").classes("p-job-state"):
                self._pill = StateBadge()
            with ui.element("div").classes("p-job-acts"):
                self._cancel = ui.button(icon="close", on_click=lambda: cancel(record.id))
                self._retry = ui.button(icon="replay", on_click=lambda: retry(record.id))
                for button, name in ((self._cancel, "Cancel"), (self._retry, "Retry")):
                    button.props(f'flat round dense aria-label="{name}"').tooltip(name)
        self.show(record)

    def show(self, record: JobRecord) -> None:
        self.record = record
        self._pill.show(record.state)
        self._bar.show(record)
        changeable = self._may_change(record)
        self._cancel.set_visibility(changeable and not record.state.final)
        self._retry.set_visibility(changeable and record.state in RETRYABLE_STATES)
        self.tick()

    def tick(self) -> None:
        now = datetime.now(UTC)
        about = f"{kind_name(self.record.kind)} · {ago(self.record.submitted, now)}"
        owner = f" · {self.record.owner}" if self.record.owner else ""
        self._about.set_text(about + owner)
        self._progress.set_text(progress_text(self.record, now))


#: Type → title, icon.
KINDS: Final = {
    "fake": ("Trial run", "hourglass_empty"),
    "build_models": ("Model building", "model_training"),
    "predict_models": ("Prediction", "biotech"),
    "call": ("Python function", "code"),
    "spark": ("Spark job", "bolt"),
    "command": ("Command", "terminal"),
}
#: State → CSS class, icon.
STATES: Final = {
    JobState.SCHEDULED: ("", "event"),
    JobState.WAITING: ("", "schedule"),
    JobState.RUNNING: ("busy", "autorenew"),
    JobState.RETRYING: ("warn", "replay"),
    JobState.DONE: ("good", "check"),
    JobState.FAILED: ("bad", "error_outline"),
    JobState.CANCELLED: ("", "block"),
    JobState.REFUSED: ("bad", "do_not_disturb"),
}


def kind_name(kind: str) -> str:
    return KINDS.get(kind, (kind, ""))[0]


def kind_icon(kind: str) -> str:
    return KINDS.get(kind, ("", "work_outline"))[1]


def span(seconds: float) -> str:
    """`3.2 s`, `4 min 10 s`, `2 h 5 min`: two units at most."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, name in units:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def utc_now() -> datetime:
    return datetime.now(UTC)


def ago(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    return "just now" if seconds < 5 else f"{_rough(seconds)} ago"


def progress_text(record: JobRecord, now: datetime) -> str:
    match record.state:
        case JobState.WAITING:
            return f"waiting for {_rough((now - record.submitted).total_seconds())}"
        case JobState.RUNNING:
            text = f"{record.progress:.0%}"
            if samples := record.summary.get("samples"):
                text += f" · {record.summary.get('predicted', 0)} of {samples} samples predicted"
            left = (record.end - now).total_seconds() if record.end else 0.0
            return f"{text} · about {_rough(left)} left" if left > 0 else text
        case JobState.RETRYING:
            return f"attempt {record.attempts} failed, retrying"
        case JobState.DONE if record.start and record.end:
            return f"took {span((record.end - record.start).total_seconds())}"
        case JobState.FAILED | JobState.REFUSED:
            return _first_line(record.error or "no reason given")
        case _:
            return ago(record.changed, now)


def _rough(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{round(seconds / size)} {name}"
    return f"{max(round(seconds), 1)} s"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 160 else f"{line[:157]}…"


async def notify_result(act: Callable[[], Awaitable[object]], done: str) -> None:
    try:
        await act()
    except (PenstockError, ConnectionError) as error:
        ui.notify(str(error), type="negative")
    else:
        ui.notify(done, type="positive")


def follow_changes(jobs: JobService, show: Callable[[Sequence[JobRecord]], None]) -> None:
    """Calls `show` with changed jobs while the page is open."""
    opened = ExitStack()
    watcher = opened.enter_context(jobs.watcher())
    task = background_tasks.create(show_changes(watcher, show), name="job changes")
    opened.callback(task.cancel)
    context.client.on_delete(opened.close)


async def show_changes(
    watcher: JobChangeWatcher, show: Callable[[Sequence[JobRecord]], None]
) -> None:
    """A few times a second, however often jobs change."""
    while True:
        records = await watcher.next_batch()
        try:
            show(records)
        except Exception:
            log.exception("page not updated")
        await asyncio.sleep(_UPDATE_SECONDS)
