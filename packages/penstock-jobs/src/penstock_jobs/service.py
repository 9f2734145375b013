"""Jobs as a program on a server asks for them: submit, look, watch, cancel, try again.

    async with Jobs("amqp://localhost", database) as jobs:
        identity = await jobs.submit(Fake("1", duration=10))
        async for record in jobs.watch(identity):
            print(record.state, record.progress)
        response = await jobs.result(identity)

The broker has the work, PostgreSQL what became of it. An open `JobService` also keeps the history;
any number of them may, in as many processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_jobs.formats import MessageFormat, read_request, read_response, write_request
from penstock_jobs.history.changes import waiting_change
from penstock_jobs.history.feed import JobChangeFeed
from penstock_jobs.history.recorder import JobRecorder
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import (
    JobEvent,
    JobOptions,
    JobPage,
    JobRecord,
    JobRequest,
    JobResponse,
    JobState,
)
from penstock_jobs.queue.properties import RequestProperties, write_request_properties
from penstock_jobs.queue.requester import JobRequester
from penstock_store import Database


class JobService:
    def __init__(self, broker_url: str, database: Database, retry_seconds: float = 0.0) -> None:
        address = parse_amqp_url(broker_url)
        self._repository = JobRepository(database)
        self._requester = JobRequester(address, retry_seconds=retry_seconds)
        self._recorder = JobRecorder(address, self._repository, retry_seconds=retry_seconds)
        self._feed = JobChangeFeed(self._repository)

    async def open(self) -> Self:
        await self._requester.open()
        await self._recorder.open()
        await self._feed.open()
        return self

    async def close(self) -> None:
        await self._feed.close()
        await self._recorder.close()
        await self._requester.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Asking.

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
    ) -> str:
        """Returns when the broker has it safe. An id that is taken is a `PreconditionFailed`."""
        options = options or JobOptions()
        written = write_request(request, form)
        now = datetime.now(UTC)
        change = waiting_change(
            request, written.body, written.content_type, now, now, priority=options.priority
        )
        await asyncio.to_thread(self._repository.begin, change)
        try:
            request_properties = RequestProperties(options=options)
            said = write_request_properties(written, request.id, request_properties)
            await self._requester.send_written(request.type, written.body, said)
        except PenstockError:
            await asyncio.to_thread(self._repository.forget, request.id)
            raise
        return request.id

    async def cancel(self, identity: str) -> JobRecord:
        """Whether it waits or runs. The record as it is now: the end of it is told by a worker."""
        record = await self.get(identity)
        if record.state.final:
            raise PreconditionFailed(f"job {identity!r} has ended: it is {record.state}")
        run = await asyncio.to_thread(self._repository.run, identity)
        await self._requester.cancel(identity, run)
        return record

    async def retry(self, identity: str) -> JobRecord:
        """Ask again for one that has ended, and not well."""
        record = await self.get(identity)
        if record.state not in (JobState.FAILED, JobState.CANCELLED):
            raise PreconditionFailed(f"job {identity!r} is {record.state}: nothing to try again")
        if record.state is JobState.FAILED and await self._requester.replay({identity}):
            return await self._asked_again(identity, record)
        kept = await asyncio.to_thread(self._repository.content, identity, "request")
        request, form = read_request(kept.body)
        run = await asyncio.to_thread(self._repository.run, identity)
        request_properties = RequestProperties(
            run=run + 1, options=JobOptions(priority=record.priority)
        )
        await self._requester.send(request, form, request_properties)
        return await self._asked_again(identity, record)

    async def replay(self, ids: Collection[str] | None = None) -> int:
        """Ask again for dead letters, all or some. How many there were."""
        return len(await self._requester.replay(ids))

    async def _asked_again(self, identity: str, before: JobRecord) -> JobRecord:
        with self._feed.watcher(identity) as watcher:
            record = await self.get(identity)
            while record.revision <= before.revision:
                record = await watcher.next()
            return record

    # Looking.

    async def get(self, identity: str) -> JobRecord:
        return await asyncio.to_thread(self._repository.get, identity)

    async def list(
        self,
        page: int = 1,
        size: int = 50,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
    ) -> JobPage:
        """Newest first; `text` is part of an id."""
        return await asyncio.to_thread(self._repository.page, page, size, state, kind, text)

    async def dead(self, page: int = 1, size: int = 50) -> JobPage:
        return await self.list(page, size, JobState.FAILED)

    async def events(self, identity: str) -> tuple[JobEvent, ...]:
        return await asyncio.to_thread(self._repository.events, identity)

    async def counts(self) -> dict[JobState, int]:
        return await asyncio.to_thread(self._repository.counts)

    async def result(self, identity: str) -> JobResponse:
        """The final response; `NotFound` if there is none yet, or no more."""
        kept = await asyncio.to_thread(self._repository.content, identity, "response")
        return (await asyncio.to_thread(read_response, kept.body))[0]

    async def request(self, identity: str) -> JobRequest:
        kept = await asyncio.to_thread(self._repository.content, identity, "request")
        return (await asyncio.to_thread(read_request, kept.body))[0]

    # Watching.

    async def watch(self, identity: str, after: int = 0) -> AsyncIterator[JobRecord]:
        """As it is now, unless that was seen (`after` is its revision), and as it changes; to the
        end of the job."""
        with self._feed.watcher(identity) as watcher:
            record = await self.get(identity)
            if record.revision > after:
                yield record
                after = record.revision
            if record.state.final:
                return
            async for record in watcher:
                if record.revision > after:
                    yield record
                    after = record.revision
                    if record.state.final:
                        return

    async def watch_all(self, after: int | None = None) -> AsyncIterator[JobRecord]:
        """Changes of any job: from now on, or since a revision."""
        with self._feed.watcher() as watcher:
            if after is not None:
                while records := await asyncio.to_thread(self._repository.since, after):
                    for record in records:
                        yield record
                        after = record.revision
            async for record in watcher:
                if after is None or record.revision > after:
                    yield record


# What the edges ask of jobs: `penstock_jobs.service.JobService` is it, and tests have one in
# memory.


class JobBackend(Protocol):
    """A job that is not there is `NotFound`, one that is not so far `PreconditionFailed`."""

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
    ) -> str: ...

    async def get(self, identity: str) -> JobRecord: ...

    async def events(self, identity: str) -> tuple[JobEvent, ...]: ...

    async def list(
        self,
        page: int = 1,
        size: int = 50,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
    ) -> JobPage: ...

    def watch(self, identity: str, after: int = 0) -> AsyncIterator[JobRecord]:
        """The record as it is and then each change, up to a final one."""

    def watch_all(self, after: int | None = None) -> AsyncIterator[JobRecord]:
        """Changes of any job, from now on or since a revision."""

    async def result(self, identity: str) -> JobResponse: ...

    async def request(self, identity: str) -> JobRequest: ...

    async def cancel(self, identity: str) -> JobRecord: ...

    async def retry(self, identity: str) -> JobRecord: ...

    async def dead(self, page: int = 1, size: int = 50) -> JobPage: ...

    async def replay(self, ids: Collection[str] | None = None) -> int: ...

    async def counts(self) -> dict[JobState, int]: ...
