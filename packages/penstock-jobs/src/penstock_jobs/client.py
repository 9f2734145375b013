"""Submits jobs and follows them, without a database.

    async with JobsClient("amqp://localhost") as jobs:
        job = await jobs.submit(Fake("1", duration=10))
        async for response in job:
            print(f"{response.progress:.0%}")
        response = await job.result()

`BlockingJobsClient` has the same methods without `async`. The scheme of the URL names the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Self

from penstock.client.blocking_client import BlockingClient, EventLoopThread
from penstock.core.errors import PenstockError
from penstock_jobs.errors import JobFailed
from penstock_jobs.formats import MessageFormat, read_response
from penstock_jobs.model import JobOptions, JobRequest, JobResponse
from penstock_jobs.queue.requester import requester_connection
from penstock_jobs.queue.topology import Durability


class SubmittedJob:
    """Iterate over it for its responses; the final one is the last."""

    def __init__(self, identity: str, client: JobsClient) -> None:
        self.id = identity
        self._client = client
        self._responses: asyncio.Queue[JobResponse | None] = asyncio.Queue()  # None: the end
        self._final: asyncio.Future[JobResponse] = asyncio.get_running_loop().create_future()

    def receive(self, response: JobResponse) -> None:
        """A response after the final one is late or repeated, and ignored."""
        if not self._final.done():
            self._responses.put_nowait(response)
            if response.final:
                self._final.set_result(response)

    def fail(self, error: PenstockError) -> None:
        if not self._final.done():
            self._final.set_exception(error)
            self._final.exception()  # avoids a warning if nobody awaits it
            self._responses.put_nowait(None)

    async def __aiter__(self) -> AsyncGenerator[JobResponse, None]:
        while (response := await self._responses.get()) is not None:
            yield response
            if response.final:
                return
        await self._final

    async def result(self, *, raises: bool = True) -> JobResponse:
        """Wait for the final response. With `raises`, its error is raised as `JobFailed`."""
        response = await asyncio.shield(self._final)
        if raises and response.error is not None:
            raise JobFailed(response.error)
        return response

    async def cancel(self) -> None:
        await self._client.cancel(self.id)


class JobsClient:
    def __init__(
        self,
        url: str,
        *,
        durability: Durability = Durability.DURABLE,
        retry_seconds: float = 0.0,
    ) -> None:
        self._connection = requester_connection(url, durability, retry_seconds)
        self._jobs: dict[str, SubmittedJob] = {}
        self._failure: PenstockError | None = None

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
    ) -> SubmittedJob:
        """Returns when the broker has confirmed it."""
        if self._failure is not None:
            raise self._failure
        job = self._jobs[request.id] = SubmittedJob(request.id, self)
        try:
            await self._connection.send(request, options or JobOptions(), form)
        except BaseException:
            del self._jobs[request.id]
            raise
        return job

    async def cancel(self, identity: str) -> None:
        await self._connection.cancel(identity)

    async def open(self) -> Self:
        await self._connection.open(self._receive, self._fail)
        return self

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _fail(self, error: PenstockError) -> None:
        self._failure = error
        for job in self._jobs.values():
            job.fail(error)
        self._jobs.clear()

    def _receive(self, body: bytes) -> None:
        try:
            response, _ = read_response(body)
        except PenstockError:
            return  # no response to a job
        job = self._jobs.get(response.id)
        if job is not None:
            job.receive(response)
            if response.final:
                del self._jobs[response.id]


class BlockingSubmittedJob:
    def __init__(self, job: SubmittedJob, loop: EventLoopThread) -> None:
        self._job = job
        self._loop = loop

    @property
    def id(self) -> str:
        return self._job.id

    def __iter__(self) -> Iterator[JobResponse]:
        return self._loop.iterate(aiter(self._job))

    def result(self, *, raises: bool = True, timeout: float | None = None) -> JobResponse:
        wait = asyncio.wait_for(self._job.result(raises=raises), timeout)
        return self._loop.wait(wait)

    def cancel(self) -> None:
        self._loop.wait(self._job.cancel())


class BlockingJobsClient(BlockingClient[JobsClient]):
    """Opened by the constructor."""

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = Durability.DURABLE,
        retry_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            lambda: JobsClient(url, durability=durability, retry_seconds=retry_seconds)
        )
        self.open()

    def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
    ) -> BlockingSubmittedJob:
        job = self._loop.wait(self._client.submit(request, options, form))
        return BlockingSubmittedJob(job, self._loop)

    def cancel(self, identity: str) -> None:
        self._loop.wait(self._client.cancel(identity))

    def __enter__(self) -> Self:
        return self
