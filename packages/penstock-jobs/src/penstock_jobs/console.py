"""The section *Jobs* of the console: counts, queues, workers, running and failed jobs, retry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from threading import Lock
from typing import Any

import penstock_store
from penstock.core.console_section import ConsoleCall, ConsoleContext
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.list_page import page_frame, page_numbers
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import JobRecord, JobState
from penstock_jobs.queue.topology import TYPES, dead_name, request_name
from penstock_jobs.service import JobService
from penstock_store import Database
from penstock_store.factory import EMBEDDED_FOLDER


def calls(context: ConsoleContext) -> Mapping[str, ConsoleCall]:
    section = JobsSection(context)
    return {
        "counts": section.counts,
        "list": section.jobs,
        "workers": section.workers,
        "queues": section.queues,
        "events": section.events,
        "do-retry": section.retry,
        "do-cancel": section.cancel,
        "do-retry-failed": section.retry_failed,
    }


class JobsSection:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._stack = ExitStack()
        self._opening = Lock()
        self._opened: Database | None = None

    @property
    def _database(self) -> Database:
        with self._opening:
            if self._opened is None:
                context = self._context
                if context.database is None and not (context.data / EMBEDDED_FOLDER).exists():
                    raise NotFound(
                        f"no history of jobs: {context.data} has no database, and "
                        "PENSTOCK_DATABASE is not set"
                    )
                opened = penstock_store.open(context.database, context.data, migrated=False)
                self._opened = self._stack.enter_context(opened)
            return self._opened

    def counts(self, arguments: dict[str, Any]) -> dict[str, int]:
        found = JobRepository(self._database).counts()
        return {state.value: count for state, count in found.items()}

    def jobs(self, arguments: dict[str, Any]) -> dict[str, Any]:
        state, text = arguments.get("state") or None, arguments.get("name") or None
        page, size = page_numbers(arguments)
        order = (
            arguments.get("sort", "submitted"),
            arguments.get("sort_reverse", "true") == "true",
        )
        found = JobRepository(self._database).page(
            page, size, None if state is None else JobState(state), text=text, order=order
        )
        items = [_row(job) for job in found.records]
        frame = page_frame(page, size, found.total, found.total)
        return {**frame, "page": page, "item_count": len(items), "items": items}

    def workers(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        return [_row(job) for job in JobRepository(self._database).running()]

    def queues(self, arguments: dict[str, Any]) -> list[dict[str, str]]:
        """The names of the queues of requests and of dead letters, by type."""
        return [
            {"kind": kind, "request": request_name(kind), "dead": dead_name(kind)} for kind in TYPES
        ]

    def events(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        found = JobRepository(self._database).events(str(arguments.get("id", "")))
        return [{**asdict(event), "at": event.at.isoformat()} for event in found]

    def retry(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return _row(self._with_service(lambda jobs: jobs.retry(str(arguments.get("id", "")))))

    def cancel(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return _row(self._with_service(lambda jobs: jobs.cancel(str(arguments.get("id", "")))))

    def retry_failed(self, arguments: dict[str, Any]) -> dict[str, int]:
        return {"retried": self._with_service(lambda jobs: jobs.replay())}

    def _with_service(self, action: Callable[[JobService], Awaitable[Any]]) -> Any:
        if not self._context.broker:
            raise PreconditionFailed("the broker has no amqp:// listener")
        database = self._database

        async def run() -> Any:
            async with JobService(self._context.broker, database) as jobs:
                return await action(jobs)

        return asyncio.run(run())


def _row(job: JobRecord) -> dict[str, Any]:
    times = ("submitted", "changed", "start", "end")
    found = {name: getattr(job, name) for name in times}
    return {**asdict(job), **{name: at and at.isoformat() for name, at in found.items()}}
