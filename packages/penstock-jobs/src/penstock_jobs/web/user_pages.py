"""The pages of users, where the job pages have their own sign-in: access tokens, the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC
from html import escape
from typing import Final

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_jobs.users.repository import JobAuditEntry, JobToken, UserRepository
from penstock_jobs.web.job_row import address

#: Entries of the audit log.
_SHOWN: Final = 200
_LABEL_LENGTH: Final = 100


class TokenPage:
    """A user's tokens for the HTTP API. A new one is shown once, because it is not stored."""

    def __init__(self, users: UserRepository, name: str) -> None:
        self._users = users
        self._name = name

    async def draw(self) -> None:
        with ui.column().classes("p-card w-full gap-3"):
            ui.label("Access tokens").classes("p-h2")
            ui.label(
                "A program uses the HTTP API with a token: Authorization: Bearer TOKEN. It sees and"
                " may do what you may."
            ).classes("p-muted p-small")
            with ui.row().classes("w-full items-center"):
                self._label = ui.input("Name of the program").props("outlined dense")
                self._label.props(f"maxlength={_LABEL_LENGTH}").classes("p-send-name")
                button = ui.button("Create a token", icon="key", on_click=self._create)
                button.props("unelevated no-caps")
            self._new = ui.column().classes("w-full gap-1")
            self._list = ui.column().classes("w-full gap-1")
        await self._show()

    async def _show(self) -> None:
        tokens = await asyncio.to_thread(self._users.tokens, self._name)
        self._list.clear()
        with self._list:
            if not tokens:
                ui.label("None yet.").classes("p-muted")
            for token in tokens:
                self._draw_token(token)

    def _draw_token(self, token: JobToken) -> None:
        with ui.row().classes("items-center w-full").props(f"data-token={token.key}"):
            ui.label(token.label or "without a name").classes("p-job-id p-ellipsis")
            created = f"{token.created.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            ui.label(f"created {created}").classes("p-muted p-small")
            ui.space()
            button = ui.button("Revoke", on_click=lambda: self._revoke(token.key))
            button.props("flat dense no-caps")

    async def _create(self) -> None:
        label = (self._label.value or "").strip()[:_LABEL_LENGTH]
        try:
            token = await asyncio.to_thread(
                self._users.new_token, self._name, label, who=self._name
            )
        except PenstockError as error:
            ui.notify(str(error), type="negative")
            return
        self._label.value = ""
        self._new.clear()
        with self._new:
            ui.label("Copy it now: it is not shown again.").classes("p-muted p-small")
            text = f"<pre class='p-output' data-new-token>{escape(token)}</pre>"
            ui.html(text, sanitize=False).classes("w-full")
        await self._show()

    async def _revoke(self, key: str) -> None:
        try:
            await asyncio.to_thread(self._users.revoke_token, self._name, key, self._name)
        except PenstockError as error:
            ui.notify(str(error), type="negative")
        await self._show()


class AuditPage:
    """For operators."""

    def __init__(self, users: UserRepository, job: str) -> None:
        self._users = users
        self._job = job

    async def draw(self) -> None:
        with ui.column().classes("p-card w-full gap-3"):
            ui.label("Audit log").classes("p-h2")
            search = ui.input("Id of a job", value=self._job)
            search.on_value_change(lambda event: self._find(event.value))
            search.props("outlined dense clearable debounce=300").classes("p-send-name")
            self._list = ui.element("div").classes("w-full")
        await self._show()

    async def _find(self, job: str | None) -> None:
        self._job = (job or "").strip()
        await self._show()

    async def _show(self) -> None:
        entries = await asyncio.to_thread(self._users.audit, _SHOWN, self._job or None)
        self._list.clear()
        with self._list:
            ui.html(audit_table(entries), sanitize=False).classes("p-scroll")


def audit_table(entries: Sequence[JobAuditEntry]) -> str:
    """HTML."""
    lines = "".join(map(_line, entries)) or "<tr><td class='p-muted'>No entries.</td></tr>"
    head = "".join(f"<th>{name}</th>" for name in ("time, UTC", "who", "what", "job", ""))
    return (
        f"<table class='p-table p-tight'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody>"
        "</table>"
    )


def _line(entry: JobAuditEntry) -> str:
    job = ""
    if entry.job:
        job = f"<a href='{escape(address(entry.job), quote=True)}'>{escape(entry.job)}</a>"
    return (
        f"<tr><td class='p-whole'>{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}</td>"
        f"<td>{escape(entry.who)}</td><td class='p-whole'>{escape(entry.action)}</td>"
        f"<td>{job}</td><td>{escape(entry.detail)}</td></tr>"
    )
