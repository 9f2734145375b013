"""Workers for tests: in the test's own loop, or as processes that can be killed."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pika

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, connect
from penstock.core.errors import NotFound
from penstock.core.retry import RetryPolicy
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock_jobs.formats import read_response
from penstock_jobs.model import JobResponse
from penstock_jobs.queue.topology import (
    CONTROL,
    HISTORY,
    RESPONSES,
    TYPES,
    Durability,
    dead_name,
    declare,
    request_name,
    response_name,
    retry_name,
)
from penstock_jobs.worker.factory import WorkerPlan, build_worker
from penstock_jobs.worker.worker import Worker, WorkerSettings
from tests.peers import Process

PATIENCE = 60
SAMPLES = "tests.integration.jobs.functions"


def clean(url: str) -> None:
    """Nothing of jobs is left on the broker: all tests use the same names."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for kind in TYPES:
        retries = [retry_name(kind, level) for level in (1, 2, 4)]
        for queue in (request_name(kind), response_name(kind), dead_name(kind), *retries):
            channel.queue_delete(queue)
        for exchange in (request_name(kind), response_name(kind)):
            channel.exchange_delete(exchange)
    for queue in (CONTROL, HISTORY):
        channel.queue_delete(queue)
    channel.exchange_delete(RESPONSES)
    connection.close()


@asynccontextmanager
async def working(
    url: str, *, attempts: int = 3, grace: float | None = 0.0, **plan: object
) -> AsyncIterator[Worker]:
    slots = plan.get("slots", 1)
    assert isinstance(slots, int)
    policy = RetryPolicy(1, 4, math.inf, attempts=attempts)
    settings = WorkerSettings(slots, policy, name=uuid.uuid4().hex[:8])
    plan.setdefault("functions", (SAMPLES,))
    plan.setdefault("settings", settings)
    worker = build_worker(url, WorkerPlan(**plan))  # type: ignore[arg-type]
    await worker.open()
    try:
        yield worker
    finally:
        await worker.close(grace)


class WorkerProcess:
    """`penstock job worker` as a process."""

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._process = Process(
            [sys.executable, "-m", "penstock", "job", *(arguments or ("worker",)), "--url", url],
            folder / f"worker-{uuid.uuid4().hex[:8]}.log",
            dict(os.environ),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._process.output()

    def ready(self) -> WorkerProcess:
        self._process.wait_for_line("penstock job worker ready")
        return self

    def wait(self) -> int:
        """For its own end; the exit status."""
        return self._process._child.wait(PATIENCE)

    def stop(self) -> int:
        return self._process.end(signal.SIGTERM)

    def kill(self) -> int:
        return self._process.end(signal.SIGKILL)


class Tap:
    """Hears all responses of a type, in a queue of its own."""

    def __init__(self, connection: AmqpClientConnection, channel: AmqpClientChannel) -> None:
        self._connection = connection
        self._channel = channel
        self.responses: list[JobResponse] = []

    @property
    def finals(self) -> Counter[str]:
        return Counter(each.id for each in self.responses if each.final)

    def hear(self, contents: list[AmqpContent]) -> None:
        self.responses += [read_response(content.body)[0] for content in contents]
        self._channel.ack(contents[-1].tag, multiple=True)

    async def delete(self, queue: str) -> None:
        await self._channel.delete_queue(queue)

    async def exists(self, queue: str) -> None:
        """Returns when it does: nobody is told when one is declared."""
        async with asyncio.timeout(PATIENCE):
            while True:
                channel = await self._connection.channel()
                with suppress(NotFound):
                    await channel.declare_queue(queue, passive=True)
                    return await channel.close()
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self._connection.close()


@asynccontextmanager
async def tapped(
    url: str, kind: str, durability: Durability = Durability.DURABLE
) -> AsyncIterator[Tap]:
    connection = await connect(parse_amqp_url(url), "tap")
    await declare(connection, kind, durability)
    channel = await connection.channel()
    declared = await channel.declare_queue("", durable=False, exclusive=True)
    await channel.bind(declared.queue or "", response_name(kind))
    tap = Tap(connection, channel)
    channel.on_deliveries = tap.hear
    await channel.consume(declared.queue or "", "tap")
    try:
        yield tap
    finally:
        await tap.close()
