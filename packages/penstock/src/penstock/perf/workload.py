"""What a load test does, and the process that does a part of it.

A message begins with the time at which it was sent, by a clock that all processes of a machine
share. With a rate, that is the time at which it was due: a broker that stalls the publisher does
not hide its latency.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final, Literal, NamedTuple, cast

from penstock.client import connect
from penstock.client.fabric import Fabric
from penstock.client.message import Body, Headers, ReceivedMessage
from penstock.client.padres import PadresClient
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.content.formatter import format_operand
from penstock.core.errors import PenstockError
from penstock.perf.histogram import LatencyHistogram

LoadPattern = Literal["queue", "topic", "stream"]

_TIME: Final = struct.Struct(">d")
#: A message has to hold its time.
MIN_SIZE: Final = _TIME.size
REPORT_SECONDS: Final = 0.5
#: Consumers stop when nothing arrived for so long after the publishers have ended.
DRAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Workload:
    url: str
    pattern: LoadPattern
    address: str  #: of the queue, topic or stream
    size: int  #: bytes of a body
    rate: float  #: messages per second of one publisher; 0 for as fast as possible
    seconds: float  #: duration of publishing
    window: int  #: unconfirmed messages of one publisher
    prefetch: int
    qos: int  #: of MQTT
    temporary: bool  #: the queue or stream is deleted at the end

    @property
    def protocol(self) -> BrokerProtocol | None:
        return protocol_of(self.url)


async def prepare(workload: Workload) -> None:
    """Create the queue or stream before consumers look for it."""
    if workload.pattern != "topic":
        async with connect(workload.url) as fabric:
            push = fabric.push if workload.pattern == "queue" else fabric.stream
            await push(workload.address).send(b"")  # too small to be counted


async def clean_up(workload: Workload) -> None:
    """AMQP 1.0 cannot delete a queue."""
    if workload.temporary and workload.pattern != "topic" and "+1.0" not in workload.url:
        async with connect(workload.url) as fabric, await fabric.amqp.channel() as channel:
            await channel.delete_queue(workload.address)


@dataclass(slots=True)
class LoadReport:
    """The figures of one process since its last report."""

    sent: int = 0
    confirmed: int = 0
    received: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    ready: bool = False  #: all its connections are open
    error: str = ""


def run_process(workload: Workload, publishers: int, consumers: int, pipe: Connection) -> None:
    """The main function of a process: reports go to the pipe, which also says when to start."""
    with contextlib.suppress(KeyboardInterrupt, EOFError):  # EOFError: the test was given up
        asyncio.run(_LoadProcess(workload, pipe).run(publishers, consumers))


class PadresLoadMessage(NamedTuple):
    body: bytes


async def padres_sender(client: PadresClient, address: str) -> MessageSender:
    """Publishes with the address as an attribute, and bodies as payloads."""
    await client.advertise(_padres_filter(address))
    publication = f"[class,perf],[address,{format_operand(address)}]"

    async def post(
        body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]:
        return cast("asyncio.Future[None]", await client.post(publication, body))

    return MessageSender(post)


async def padres_receiver(client: PadresClient, address: str) -> AsyncIterator[PadresLoadMessage]:
    await client.subscribe(_padres_filter(address))

    async def messages() -> AsyncIterator[PadresLoadMessage]:
        async for received in client:
            yield PadresLoadMessage(received.payload)

    return messages()


def _padres_filter(address: str) -> str:
    return f"[class,eq,perf],[address,eq,{format_operand(address)}]"


class _LoadProcess:
    def __init__(self, workload: Workload, pipe: Connection) -> None:
        self._workload = workload
        self._pipe = pipe
        self._report = LoadReport()

    async def run(self, publishers: int, consumers: int) -> None:
        try:
            async with contextlib.AsyncExitStack() as opened:
                await self._run(opened, publishers, consumers)
        except (PenstockError, OSError) as error:
            self._report.error = str(error) or type(error).__name__
        with contextlib.suppress(OSError):
            self._send_report()
        self._pipe.close()

    async def _run(
        self, opened: contextlib.AsyncExitStack, publishers: int, consumers: int
    ) -> None:
        receivers = [await self._open_receiver(opened) for _ in range(consumers)]
        senders = [await self._open_sender(opened) for _ in range(publishers)]
        self._report.ready = True
        self._send_report()
        await asyncio.to_thread(self._pipe.recv)  # all processes are ready
        reporting = asyncio.create_task(self._report_regularly())
        receiving = [asyncio.create_task(self._receive(each)) for each in receivers]
        try:
            async with asyncio.TaskGroup() as publishing:
                for sender in senders:
                    publishing.create_task(self._publish(sender))
            if receiving:
                await asyncio.to_thread(self._pipe.recv)  # all messages have arrived
        finally:
            for task in (*receiving, reporting):
                task.cancel()
            await asyncio.gather(*receiving, reporting, return_exceptions=True)

    async def _open_sender(self, opened: contextlib.AsyncExitStack) -> MessageSender:
        work = self._workload
        if work.protocol is BrokerProtocol.PADRES:
            client = await opened.enter_async_context(PadresClient(work.url))
            return await padres_sender(client, work.address)
        return self._sender(await opened.enter_async_context(connect(work.url)))

    async def _open_receiver(
        self, opened: contextlib.AsyncExitStack
    ) -> AsyncIterable[ReceivedMessage | PadresLoadMessage]:
        work = self._workload
        if work.protocol is BrokerProtocol.PADRES:
            client = await opened.enter_async_context(PadresClient(work.url))
            return await padres_receiver(client, work.address)
        receiver = self._receiver(await opened.enter_async_context(connect(work.url)))
        return await opened.enter_async_context(receiver)

    def _sender(self, fabric: Fabric) -> MessageSender:
        work = self._workload
        if work.pattern == "queue":
            return fabric.push(work.address)
        if work.pattern == "stream":
            return fabric.stream(work.address)
        if work.protocol is BrokerProtocol.MQTT:
            return fabric.mqtt.publisher(work.address, qos=work.qos)
        return fabric.publisher(work.address)

    def _receiver(self, fabric: Fabric) -> MessageReceiver:
        work = self._workload
        if work.pattern == "queue":
            return fabric.pull(work.address, prefetch=work.prefetch)
        if work.pattern == "stream":
            return fabric.replay(work.address, "next", prefetch=work.prefetch)
        if work.protocol is BrokerProtocol.MQTT:
            return fabric.mqtt.subscribe(work.address, qos=work.qos)
        return fabric.subscribe(work.address, prefetch=work.prefetch)

    async def _publish(self, sender: MessageSender) -> None:
        work, report_confirm = self._workload, self._confirmed
        padding = bytes(work.size - MIN_SIZE)
        window = asyncio.Semaphore(work.window)

        def confirmed(_: asyncio.Future[None]) -> None:
            window.release()
            report_confirm()

        start = time.monotonic()
        number = 0
        async with sender:
            while (now := time.monotonic()) < start + work.seconds:
                due = now
                if work.rate:
                    due = start + number / work.rate
                    if due > now:
                        await asyncio.sleep(due - now)
                await window.acquire()
                future = await sender.post(_TIME.pack(due) + padding)
                future.add_done_callback(confirmed)
                self._report.sent += 1
                number += 1
                if not number % 64:
                    await asyncio.sleep(0)  # the other tasks of this process

    def _confirmed(self) -> None:
        self._report.confirmed += 1

    async def _receive(self, receiver: AsyncIterable[ReceivedMessage | PadresLoadMessage]) -> None:
        unpack, clock = _TIME.unpack_from, time.monotonic
        async for message in receiver:
            body = message.body
            if len(body) < MIN_SIZE:
                continue  # of another program
            self._report.received += 1
            self._report.latency.add(clock() - unpack(body)[0])

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._send_report()

    def _send_report(self) -> None:
        report, self._report = self._report, LoadReport()
        self._pipe.send(report)
