"""Keeps the history: takes copies of requests and responses from their queue, writes them in
batches, and acknowledges what is written. Any number may do so at once; none need be there all the
time, for what happens meanwhile waits in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Final

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import AmqpContent
from penstock_jobs.history.changes import JobChange, from_request, from_response
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.queue.properties import STATE
from penstock_jobs.queue.topology import HISTORY, declare_history

log = get_logger(__name__)

_PREFETCH: Final = 2_000
_BATCH: Final = 1_000
_SWEEP_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 1.0


class JobRecorder:
    def __init__(
        self, address: AmqpAddress, repository: JobRepository, retry_seconds: float = 0.0
    ) -> None:
        self._repository = repository
        self._link = AmqpRecoveringConnection(
            address, "penstock jobs history", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._arrived: list[tuple[AmqpClientChannel, AmqpContent]] = []
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self._link.open()
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._sweep())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        await declare_history(connection)
        channel = await connection.channel()
        channel.on_deliveries = lambda contents: self._take(channel, contents)
        await channel.prefetch(_PREFETCH)
        await channel.consume(HISTORY, "history")

    def _take(self, channel: AmqpClientChannel, contents: list[AmqpContent]) -> None:
        self._arrived += [(channel, content) for content in contents]
        self._news.set()

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._arrived:
                batch, self._arrived = self._arrived[:_BATCH], self._arrived[_BATCH:]
                await self._store([change for _, each in batch if (change := _change(each))])
                for channel, content in batch:
                    channel.ack(content.tag)

    async def _store(self, changes: list[JobChange]) -> None:
        """However long the database is away: the broker keeps what is not acknowledged."""
        while True:
            try:
                return await asyncio.to_thread(self._repository.add, changes)
            except PenstockError as error:
                if not is_transient(error):
                    raise
                log.warning("history waits for its database", reason=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _sweep(self) -> None:
        while True:
            with contextlib.suppress(PenstockError):
                while await asyncio.to_thread(self._repository.sweep):
                    pass
            await asyncio.sleep(_SWEEP_SECONDS)


def _change(content: AmqpContent) -> JobChange | None:
    now = datetime.now(UTC)
    try:
        said = decode_header(content.header)
        # Ours say which they are; of others' messages the body does.
        if STATE in (said.headers or {}):
            return from_response(content.body, said, now)
        return from_request(content.body, said, now) or from_response(content.body, said, now)
    except (WireSyntaxError, ValueError, OverflowError) as error:
        log.warning("a message that has no place in the history", reason=str(error))
        return None
