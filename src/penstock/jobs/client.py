"""Asking for work and following it, without a database.

    async with JobsClient("amqp://localhost") as jobs:
        job = await jobs.submit(Fake("1", duration=10))
        async for response in job:
            print(f"{response.progress:.0%}")
        response = await job.result()

`penstock.jobs.blocking` has the same without `async`. The URL says by which protocol
(`penstock.jobs.queue.mailbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from penstock.core.errors import PenstockError
from penstock.jobs.errors import WorkFailed
from penstock.jobs.forms import Form, read_response
from penstock.jobs.model import Request, Response
from penstock.jobs.options import Options
from penstock.jobs.queue.mailbox import mailbox_at
from penstock.jobs.queue.topology import Durability


class ClientJob:
    """One that was asked for; loop over it for its responses, the last one last."""

    def __init__(self, identity: str, client: JobsClient) -> None:
        self.id = identity
        self._client = client
        self._responses: asyncio.Queue[Response | None] = asyncio.Queue()  # None: no more come
        self._final: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def hear(self, response: Response) -> None:
        """What comes after the final response is a copy, or late."""
        if not self._final.done():
            self._responses.put_nowait(response)
            if response.final:
                self._final.set_result(response)

    def fail(self, error: PenstockError) -> None:
        """Whatever becomes of it, it will not be heard of."""
        if not self._final.done():
            self._final.set_exception(error)
            self._final.exception()  # nobody may ask, which is no mistake
            self._responses.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Response]:
        while (response := await self._responses.get()) is not None:
            yield response
            if response.final:
                return
        await self._final

    async def result(self, *, raises: bool = True) -> Response:
        """The final response; an error in it is raised, unless that is not wanted. Without one
        it waits as long as it takes, unless the broker will not have us back."""
        response = await asyncio.shield(self._final)
        if raises and response.error is not None:
            raise WorkFailed(response.error)
        return response

    async def cancel(self) -> None:
        await self._client.cancel(self.id)


class JobsClient:
    def __init__(
        self,
        url: str,
        *,
        durability: Durability = Durability.DURABLE,
        patience: float = 0.0,
    ) -> None:
        self._mailbox = mailbox_at(url, durability, patience)
        self._jobs: dict[str, ClientJob] = {}
        self._failure: PenstockError | None = None  # why nothing is heard any more

    async def submit(
        self, request: Request, options: Options | None = None, form: Form = Form.JSON
    ) -> ClientJob:
        """Returns when the broker has it safe."""
        if self._failure is not None:
            raise self._failure
        job = self._jobs[request.id] = ClientJob(request.id, self)
        try:
            await self._mailbox.send(request, options or Options(), form)
        except BaseException:
            del self._jobs[request.id]
            raise
        return job

    async def cancel(self, identity: str) -> None:
        await self._mailbox.cancel(identity)

    async def open(self) -> Self:
        await self._mailbox.open(self._hear, self._fail)
        return self

    async def close(self) -> None:
        await self._mailbox.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _fail(self, error: PenstockError) -> None:
        """The broker will not have us back."""
        self._failure = error
        for job in self._jobs.values():
            job.fail(error)
        self._jobs.clear()

    def _hear(self, body: bytes) -> None:
        try:
            response, _ = read_response(body)
        except PenstockError:
            return  # not one of ours
        job = self._jobs.get(response.id)
        if job is not None:
            job.hear(response)
            if response.final:
                del self._jobs[response.id]
