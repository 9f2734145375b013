"""A job in the list: one line that changes while the job goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from urllib.parse import quote

from nicegui import ui

from penstock.jobs.history.records import JobRecord, JobState
from penstock.web.jobs import words

Act = Callable[[str], Awaitable[None]]
AGAIN = (JobState.FAILED, JobState.CANCELLED)
_NOTHING = (JobState.CANCELLED, JobState.REFUSED)


def address(id: str) -> str:  # noqa: A002 - as records have it
    return f"/jobs/{quote(id)}"


class Pill:
    """The state, as a word with a colour."""

    def __init__(self) -> None:
        with ui.element("span").classes("p-pill").props("role=status") as self._pill:
            self._icon = ui.icon("schedule")
            self._word = ui.label()

    def show(self, state: JobState) -> None:
        look, icon = words.STATES[state]
        self._pill.classes(replace=f"p-pill {look}")
        self._icon.set_name(icon)
        self._word.set_text(state.value)


class Bar:
    """Progress; of a job that waits, or that nothing came of, an empty one."""

    def __init__(self) -> None:
        self._bar = ui.linear_progress(value=0.0, show_value=False, size="6px")
        self._bar.props("rounded track-color=transparent").classes("p-bar")

    def show(self, record: JobRecord) -> None:
        colour = {JobState.DONE: "positive", JobState.FAILED: "negative"}.get(record.state)
        self._bar.props(f"color={colour or 'primary'}")
        # The last response says 1, whatever came of it.
        self._bar.set_value(0.0 if record.state in _NOTHING else record.progress)


class Row:
    def __init__(self, record: JobRecord, cancel: Act, retry: Act) -> None:
        self.record = record
        with ui.element("div").classes("p-job").props(f'data-job="{quote(record.id)}"'):
            ui.icon(words.kind_icon(record.kind)).classes("p-job-icon")
            with ui.element("div").classes("p-job-name"):
                ui.link(record.id, address(record.id)).classes("p-job-id p-ellipsis")
                self._about = ui.label().classes("p-muted p-small p-ellipsis")
            with ui.element("div").classes("p-job-progress"):
                self._bar = Bar()
                self._standing = ui.label().classes("p-muted p-small p-number p-ellipsis")
            with ui.element("div").classes("p-job-state"):
                self._pill = Pill()
            with ui.element("div").classes("p-job-acts"):
                self._cancel = ui.button(icon="close", on_click=lambda: cancel(record.id))
                self._retry = ui.button(icon="replay", on_click=lambda: retry(record.id))
                for button, name in ((self._cancel, "Cancel"), (self._retry, "Try again")):
                    button.props(f'flat round dense aria-label="{name}"').tooltip(name)
        self.show(record)

    def show(self, record: JobRecord) -> None:
        self.record = record
        self._pill.show(record.state)
        self._bar.show(record)
        self._cancel.set_visibility(not record.state.final)
        self._retry.set_visibility(record.state in AGAIN)
        self.tick()

    def tick(self) -> None:
        """Time has gone by."""
        now = datetime.now(UTC)
        about = f"{words.kind_name(self.record.kind)} · {words.ago(self.record.submitted, now)}"
        self._about.set_text(about)
        self._standing.set_text(words.standing(self.record, now))
