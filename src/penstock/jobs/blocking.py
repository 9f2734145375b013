"""Asking for work and following it, for programs that wait.

with JobsClient("amqp://localhost") as jobs:
    job = jobs.submit(Fake("1", duration=10))
    for response in job:
        print(f"{response.progress:.0%}")
    response = job.result()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from penstock.client.blocking.loop import LoopThread
from penstock.jobs import client
from penstock.jobs.forms import Form
from penstock.jobs.model import Request, Response
from penstock.jobs.options import Options
from penstock.jobs.queue.topology import Durability


class ClientJob:
    def __init__(self, job: client.ClientJob, loop: LoopThread) -> None:
        self._job = job
        self._loop = loop

    @property
    def id(self) -> str:
        return self._job.id

    def __iter__(self) -> Iterator[Response]:
        responses = aiter(self._job)
        while True:
            response = self._loop.wait(_next(responses))
            if response is None:
                return
            yield response

    def result(self, *, raises: bool = True, timeout: float | None = None) -> Response:
        wait = asyncio.wait_for(self._job.result(raises=raises), timeout)
        return self._loop.wait(wait)

    def cancel(self) -> None:
        self._loop.wait(self._job.cancel())


class JobsClient:
    def __init__(
        self,
        url: str,
        *,
        durability: Durability = Durability.DURABLE,
        patience: float = 0.0,
    ) -> None:
        self._loop = LoopThread()
        try:
            self._client = self._loop.wait(_opened(url, durability, patience))
        except BaseException:
            self._loop.stop()
            raise

    def submit(
        self, request: Request, options: Options | None = None, form: Form = Form.JSON
    ) -> ClientJob:
        return ClientJob(self._loop.wait(self._client.submit(request, options, form)), self._loop)

    def cancel(self, identity: str) -> None:
        self._loop.wait(self._client.cancel(identity))

    def close(self) -> None:
        try:
            self._loop.wait(self._client.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _opened(url: str, durability: Durability, patience: float) -> client.JobsClient:
    return await client.JobsClient(url, durability=durability, patience=patience).open()


async def _next(responses: AsyncIterator[Response]) -> Response | None:
    return await anext(responses, None)
