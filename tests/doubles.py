"""Doubles of both sides of the contract, and a kernel to stand them on.

`Listener` is a terminal that notes what it is told, `Recorder` a driver that does. `Stand` is
what a broker builds before it opens a socket: a kernel in a directory and one virtual host on it.
Its clock goes only when a test says so; its disk is real, but nothing is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, repeat
from pathlib import Path
from typing import Any, Self

from penstock.broker.buckets import BucketPool
from penstock.broker.content_header import message_flags
from penstock.broker.contract import (
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    Driver,
    Fragment,
    Message,
    Sink,
)
from penstock.broker.kernel import Kernel
from penstock.broker.log.committer import Committer
from penstock.broker.message_run import MessageRun
from penstock.broker.spool import Spools
from penstock.broker.topology import Topology
from penstock.broker.vhost import VirtualHost
from penstock.broker.write_batch import WriteBatch
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.config import BrokerSettings
from penstock.core.metrics import Metrics
from penstock.destinations.delayed import DelayedMessages
from penstock.destinations.direct_reply_to import ReplyChannel
from penstock.destinations.retained import RetainedStore
from penstock.server.destination_types import EXCHANGE_TYPES, QUEUE_TYPES


class Listener:
    """A terminal that notes what it is told."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[Message | Fragment, Delivery | None]] = []
        self.confirmed: list[int] = []
        self.failed: list[tuple[int, Exception]] = []
        self.changed = asyncio.Event()

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        self.forwarded.append((fragment, delivery))
        self.changed.set()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self.confirmed.append(receipt)
        self.changed.set()

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self.failed.append((receipt, error))
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def until_more(self, seen: int) -> None:
        """Until more has been forwarded than that."""
        await self.until(lambda: len(self.forwarded) > seen)

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one, _ in self.forwarded if isinstance(one, Message)]

    @property
    def deliveries(self) -> list[Delivery]:
        return [delivery for _, delivery in self.forwarded if delivery is not None]


class Recorder:
    """A driver that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        self.asked.append(("open", arguments))

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        self.asked.append(("post", fragment, receipt))

    def channel_request(self, channel: Channel, credit: int) -> None:
        self.asked.append(("request", credit))

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        self.asked.append(("confirm", delivery))

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self.asked.append(("failure", delivery, requeue))

    def channel_close(self, channel: Channel) -> None:
        self.asked.append(("close",))


class Client(Channel):
    """A channel to a driver with a listener at its end: a client, as a driver meets it."""

    __slots__ = ("ear",)

    def __init__(self, driver: Any, *, settled: bool = False, **arguments: Any) -> None:
        self.ear = Listener()
        super().__init__(self.ear, driver, settled)
        self.forward_run = self._forward_run
        driver.channel_open(self, {key.replace("_", "-"): arguments[key] for key in arguments})

    def _forward_run(
        self, channel: Channel, run: MessageRun, deliveries: list[Delivery] | None, packet_id: int
    ) -> bool:
        for one, delivery in zip(run.messages, deliveries or repeat(None), strict=False):
            self.ear.channel_forward(channel, one, delivery)
        return True

    def post(self, fragment: Message | Fragment, receipt: int = 0) -> None:
        self.driver.channel_post(self, fragment, receipt)

    def request(self, credit: int = UNLIMITED_CREDIT) -> Self:
        self.driver.channel_request(self, credit)
        return self

    def confirm(self, delivery: Delivery) -> None:
        self.driver.channel_confirm(self, delivery)

    def fail(self, delivery: Delivery, requeue: bool = True) -> None:
        self.driver.channel_failure(self, delivery, requeue)

    def close(self) -> None:
        self.driver.channel_close(self)

    def draw(self) -> None:
        """Take the next fragment of a large message, and whatever comes after it."""
        self.request(1)


def message(
    body: bytes = b"hello", key: str = "key", exchange: str = "", **properties: Any
) -> Message:
    header = encode_header(BasicProperties(**properties), len(body))
    return Message(encode_route(exchange, key), header, body, message_flags(header))


def persistent(body: bytes = b"hello", key: str = "key", **properties: Any) -> Message:
    return message(body, key, delivery_mode=2, **properties)


def push_all(sink: Sink, *bodies: bytes) -> None:
    for body in bodies:
        sink.push(message(body))


class Timer:
    """A call the stepped clock has yet to make."""

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self._when = when
        self.call: Callable[[], None] | None = call

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.call = None


class SteppedLoop:
    """The running loop, with a clock of its own that goes when `advance` says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = 1000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(when, lambda: callback(*args))
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heappop(self._timers)
            self._now = max(self._now, when)
            if timer.call is not None:
                timer.call()
        self._now = end


def unchecked_settings(**values: Any) -> BrokerSettings:
    """Settings outside their limits: tests want queues that page after a few messages."""
    settings = BrokerSettings()
    vars(settings).update(values)
    return settings


class Stand:
    """A kernel in a directory, and the virtual host `/` on it."""

    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        sync: Callable[[int], None] = lambda _: None,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.reports: list[str] = []
        self.faults: list[OSError] = []
        real = loop or asyncio.get_running_loop()
        self.clock = SteppedLoop(real)
        self._settings = settings
        self._closed = False
        directory.mkdir(parents=True, exist_ok=True)
        pool = BucketPool(1 << 30)
        committer = Committer(
            real,
            on_fault=self.faults.append,
            on_recovered=lambda: None,
            on_synced=lambda: self.kernel.write_batch.flush(),
            retry_seconds=0.01,
            sync=sync,
        )
        stepped: Any = self.clock
        self.kernel = Kernel(
            loop=stepped,
            settings=unchecked_settings(**settings),
            directory=directory,
            committer=committer,
            write_batch=WriteBatch(stepped, committer),
            pool=pool,
            spools=Spools(
                directory / "spool",
                pool,
                real,
                on_fault=self.faults.append,
                on_recovered=lambda: None,
            ),
            metrics=Metrics(),
            report=self.reports.append,
        )
        self.topology = Topology(directory / "topology.jsonl", committer, self.reports.append)
        self.vhost = self.open_vhost("/")

    def open_vhost(self, name: str) -> VirtualHost:
        return VirtualHost(
            name,
            self.kernel,
            self.topology,
            EXCHANGE_TYPES,
            QUEUE_TYPES,
            ReplyChannel,
            RetainedStore,
            DelayedMessages,
        )

    def queue(self, name: str = "q", *, durable: bool = False, **arguments: Any) -> Any:
        """A queue; keyword arguments are its arguments, `max_length` for `x-max-length`."""
        spelled = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declare_queue(name, durable=durable, arguments=spelled)

    def exchange(self, name: str, kind: str = "direct", **options: Any) -> Any:
        return self.vhost.declare_exchange(name, kind, **options)

    def publisher(self, exchange: str = "") -> Client:
        driver: Driver = self.vhost.exchange(exchange)
        return Client(driver)

    @property
    def pool(self) -> BucketPool:
        return self.kernel.pool

    @property
    def spooled(self) -> list[Path]:
        """The bodies that lie in the spool directory."""
        return sorted(self.kernel.spools.directory.iterdir())

    async def synced(self) -> None:
        """Until all that was appended so far is on disk."""
        done = asyncio.get_running_loop().create_future()
        self.kernel.committer.after(lambda: done.set_result(None), done.set_exception)
        self.kernel.write_batch.flush()
        await done

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.kernel.write_batch.flush()
        await self.kernel.committer.close()
        self.vhost.close(lambda name, error: self.faults.append(error))
        self.topology.close()
        self.kernel.spools.close()

    async def reopened(self) -> Stand:
        """What a restart makes of it."""
        await self.close()
        return Stand(self.directory, **self._settings)
