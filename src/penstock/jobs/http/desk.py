"""What the edges ask of jobs: `penstock.jobs.service.Jobs` is it, and tests have one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Protocol

from penstock.jobs.forms import Form
from penstock.jobs.history.records import Event, JobPage, JobRecord, JobState
from penstock.jobs.model import Request, Response
from penstock.jobs.options import Options


class JobDesk(Protocol):
    """A job that is not there is `NotFound`, one that is not so far `PreconditionFailed`."""

    async def submit(
        self, request: Request, options: Options | None = None, form: Form = Form.JSON
    ) -> str: ...

    async def get(self, identity: str) -> JobRecord: ...

    async def events(self, identity: str) -> tuple[Event, ...]: ...

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

    async def result(self, identity: str) -> Response: ...

    async def request(self, identity: str) -> Request: ...

    async def cancel(self, identity: str) -> JobRecord: ...

    async def retry(self, identity: str) -> JobRecord: ...

    async def dead(self, page: int = 1, size: int = 50) -> JobPage: ...

    async def replay(self, ids: Collection[str] | None = None) -> int: ...

    async def counts(self) -> dict[JobState, int]: ...
