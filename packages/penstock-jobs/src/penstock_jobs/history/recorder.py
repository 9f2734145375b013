"""Writes the history: consumes copies of requests and responses, and acknowledges stored batches.

Any number of recorders may run at once. While none runs, the messages wait in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import psycopg

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.basic_properties import BasicProperties, decode_header
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy, retry_async
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock_jobs.history.changes import JobChange, from_request, from_response
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.queue.properties import STATE
from penstock_jobs.queue.topology import HISTORY, declare_history
from penstock_jobs.queue.worker_connection import HistoryMessage

log = get_logger(__name__)

_PREFETCH: Final = 2_000
_BATCH: Final = 1_000
_CLEANUP_SECONDS: Final = 600.0
#: The broker stores what is not acknowledged, so a recorder waits as long as it takes.
_RETRIES: Final = RetryPolicy.fixed(1.0)
#: Errors of values: a NUL in an id, for example.
_UNSTORABLE: Final = (psycopg.DataError, ValueError)


class HistorySource(Protocol):
    """The queue of the history, over any protocol."""

    async def open(self, received: Callable[[list[HistoryMessage]], None]) -> None: ...

    async def close(self) -> None: ...


class Amqp091HistorySource:
    def __init__(self, url: str, retry_seconds: float) -> None:
        self._link = AmqpRecoveringConnection(
            parse_amqp_url(url), "penstock jobs history", self._prepare, retry_seconds=retry_seconds
        )
        self._received: Callable[[list[HistoryMessage]], None]

    async def open(self, received: Callable[[list[HistoryMessage]], None]) -> None:
        self._received = received
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        await declare_history(connection)
        channel = await connection.channel()
        channel.on_deliveries = lambda contents: self._receive(channel, contents)
        await channel.prefetch(_PREFETCH)
        await channel.consume(HISTORY, "history")

    def _receive(self, channel: AmqpClientChannel, contents: list[AmqpContent]) -> None:
        messages = []
        for content in contents:
            acknowledge = partial(channel.ack, content.tag)
            try:
                properties = decode_header(content.header)
            except WireSyntaxError:
                properties = BasicProperties()
            messages.append(HistoryMessage(content.body, properties, acknowledge))
        self._received(messages)


def history_source(url: str, retry_seconds: float) -> HistorySource:
    if protocol_of(url) is BrokerProtocol.AMQP10:
        from penstock_jobs.queue.amqp10 import Amqp10HistorySource

        return Amqp10HistorySource(url, retry_seconds)
    return Amqp091HistorySource(url, retry_seconds)


class JobRecorder:
    def __init__(self, url: str, repository: JobRepository, retry_seconds: float = 0.0) -> None:
        self._repository = repository
        self._source = history_source(url, retry_seconds)
        self._received: list[HistoryMessage] = []
        self._has_received = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self._source.open(self._receive)
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._clean_up())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._source.close()

    def _receive(self, messages: list[HistoryMessage]) -> None:
        self._received += messages
        self._has_received.set()

    async def _write(self) -> None:
        while True:
            await self._has_received.wait()
            self._has_received.clear()
            while self._received:
                batch, self._received = self._received[:_BATCH], self._received[_BATCH:]
                await self._store([change for each in batch if (change := _change(each))])
                for message in batch:
                    message.acknowledge()

    async def _store(self, changes: list[JobChange]) -> None:
        """Raises nothing: a change that no database can store is skipped, the others are stored."""

        def store() -> Awaitable[None]:
            return asyncio.to_thread(self._repository.add, changes)

        try:
            await retry_async(store, _RETRIES, lambda error: not isinstance(error, _UNSTORABLE))
        except _UNSTORABLE as error:
            if len(changes) == 1:
                log.warning("message not stored", job=repr(changes[0].id), reason=str(error))
                return
            for change in changes:
                await self._store([change])

    async def _clean_up(self) -> None:
        while True:
            with contextlib.suppress(PenstockError):
                while await asyncio.to_thread(self._repository.clean_up):
                    pass
            await asyncio.sleep(_CLEANUP_SECONDS)


def _change(message: HistoryMessage) -> JobChange | None:
    body, properties, now = message.body, message.properties, datetime.now(UTC)
    try:
        # Messages of other programs have no state: their bodies tell what they are.
        if STATE in (properties.headers or {}):
            return from_response(body, properties, now)
        return from_request(body, properties, now) or from_response(body, properties, now)
    except (ValueError, OverflowError) as error:
        log.warning("unreadable message skipped", queue=HISTORY, reason=str(error))
        return None
