"""Asking for work and following it, without a database.

    async with JobsClient("amqp://localhost") as jobs:
        job = await jobs.submit(Fake("1", duration=10))
        async for response in job:
            print(f"{response.progress:.0%}")
        response = await job.result()

`penstock.jobs.blocking` has the same without `async`. Responses wait in a queue of the client's own
while its connection is broken.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

from pamqp import commands

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError
from penstock.jobs.errors import FormError, WorkFailed
from penstock.jobs.forms import Form, read_response
from penstock.jobs.model import Request, Response
from penstock.jobs.options import Options
from penstock.jobs.queue.envelope import Envelope
from penstock.jobs.queue.requester import Requester
from penstock.jobs.queue.topology import RESPONSES, Durability
from penstock.wire.amqp091.address import parse_address
from penstock.wire.amqp091.messages import Content

#: Responses to a client that does not come back.
_QUEUE_MILLISECONDS: Final = 600_000


class ClientJob:
    """One that was asked for; loop over it for its responses, the last one last."""

    def __init__(self, identity: str, client: JobsClient) -> None:
        self.id = identity
        self._client = client
        self._responses: asyncio.Queue[Response] = asyncio.Queue()
        self._final: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def hear(self, response: Response) -> None:
        """What comes after the final response is a copy, or late."""
        if not self._final.done():
            self._responses.put_nowait(response)
            if response.final:
                self._final.set_result(response)

    async def __aiter__(self) -> AsyncIterator[Response]:
        while True:
            response = await self._responses.get()
            yield response
            if response.final:
                return

    async def result(self, *, raises: bool = True) -> Response:
        """The final response; an error in it is raised, unless that is not wanted."""
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
        address = parse_address(url)
        self._token = uuid.uuid4().hex
        self._queue = f"penstock.jobs.client.{self._token}"
        self._requester = Requester(address, durability, patience)
        self._link = Link(address, "penstock jobs client", self._prepare, patience=patience)
        self._channel: Channel | None = None
        self._jobs: dict[str, ClientJob] = {}

    async def submit(
        self, request: Request, options: Options | None = None, form: Form = Form.JSON
    ) -> ClientJob:
        """Returns when the broker has it safe."""
        job = self._jobs[request.id] = ClientJob(request.id, self)
        envelope = Envelope(reply_to=self._token, options=options or Options())
        try:
            await self._requester.send(request, form, envelope)
        except BaseException:
            del self._jobs[request.id]
            raise
        return job

    async def cancel(self, identity: str) -> None:
        await self._requester.cancel(identity)

    async def open(self) -> Self:
        await self._link.open()
        await self._requester.open()
        return self

    async def close(self) -> None:
        await self._requester.close()
        if self._channel is not None and self._channel.failure is None:
            leave = commands.Queue.Delete(queue=self._queue)
            await self._channel.call(leave, commands.Queue.DeleteOk)
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _prepare(self, connection: Connection) -> None:
        self._channel = channel = await connection.channel()
        await channel.declare_exchange(RESPONSES, "direct")
        await channel.declare_queue(self._queue, arguments={"x-expires": _QUEUE_MILLISECONDS})
        await channel.bind(self._queue, RESPONSES, self._token)
        channel.on_deliveries = lambda contents: self._hear(channel, contents)
        await channel.consume(self._queue, "responses")

    def _hear(self, channel: Channel, contents: list[Content]) -> None:
        for content in contents:
            try:
                response, _ = read_response(content.body)
            except (FormError, PenstockError):
                continue
            job = self._jobs.get(response.id)
            if job is not None:
                job.hear(response)
                if response.final:
                    del self._jobs[response.id]
        channel.ack(contents[-1].tag, multiple=True)
