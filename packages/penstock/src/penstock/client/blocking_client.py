"""The client without `async`.

The same names, with `with` and `for` where the other has `async with` and `async for`. A fabric
runs the asynchronous one on an event loop in a thread of its own, so connections are kept alive
while the program is busy elsewhere; any thread may use it. Ctrl-C ends a wait at once.

    with connect("amqp://localhost") as fabric:
        fabric.publish("prices.oil", {"usd": 61})
        for item in fabric.pull("work"):
            ...
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client import fabric
from penstock.client import fabric as patterns
from penstock.client import message as asynchronous
from penstock.client.fabric import StreamStart
from penstock.client.message import Body, Headers
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.client.service import RequestService

__all__ = [
    "BlockingFabric",
    "BlockingHandler",
    "BlockingMessage",
    "BlockingReceiver",
    "BlockingSender",
    "BlockingService",
    "PublishReceipt",
    "connect",
]


# An event loop in a thread of its own, for those who wait in another.

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines, until `stop`."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="penstock client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine over there and wait for it here."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted wait leaves nothing running
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """`wait` for the first thing; nothing is left of the loop if that fails."""
        try:
            return self.wait(work)
        except BaseException:
            self.stop()
            raise

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """`wait` for the last thing, and stop however it ends."""
        try:
            self.wait(work)
        finally:
            self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with self._runner:  # its end cancels tasks that are left, and waits for them
            self._loop.run_forever()


# A message whose settling and answering wait. All else is read from the message itself.


class BlockingMessage:
    """Reads as `penstock.client.ReceivedMessage` does."""

    __slots__ = ("_loop", "_message")

    body: bytes
    text: str
    address: str
    content_type: str | None
    headers: Mapping[str, Any]
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    timestamp: datetime | None
    redelivered: bool
    offset: int | None
    qos: int | None
    retained: bool

    def __init__(self, loop: EventLoopThread, message: asynchronous.ReceivedMessage) -> None:
        self._loop = loop
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return repr(self._message)

    def json(self) -> Any:
        return self._message.json()

    def ack(self) -> None:
        self._loop.wait(self._message.ack())

    def reject(self) -> None:
        self._loop.wait(self._message.reject())

    def requeue(self) -> None:
        self._loop.wait(self._message.requeue())

    def reply(self, body: Body = b"", *, headers: Mapping[str, Any] | None = None) -> None:
        self._loop.wait(self._message.reply(body, headers=headers))

    def fail(self, error: BaseException) -> None:
        self._loop.wait(self._message.fail(error))


# What comes and goes, for those who wait: the twins of the client's flows and services.


class PublishReceipt:
    """The promise for a posted message."""

    __slots__ = ("_loop", "_safe")

    def __init__(self, loop: EventLoopThread, confirmed: Awaitable[None]) -> None:
        self._loop = loop
        self._safe = confirmed

    def wait(self) -> None:
        """Returns when the message is safe."""

        async def settled() -> None:
            await self._safe

        self._loop.wait(settled())


class BlockingSender:
    def __init__(self, loop: EventLoopThread, sender: MessageSender) -> None:
        self._loop = loop
        self._sender = sender

    def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        self._loop.wait(self._sender.send(body, headers=headers, ttl=ttl, message_id=message_id))

    def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> PublishReceipt:
        posting = self._sender.post(body, headers=headers, ttl=ttl, message_id=message_id)
        return PublishReceipt(self._loop, self._loop.wait(posting))

    def flush(self) -> None:
        self._loop.wait(self._sender.flush())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._sender.__aexit__(kind, error, trace))


class BlockingReceiver:
    def __init__(self, loop: EventLoopThread, receiver: MessageReceiver) -> None:
        self._loop = loop
        self._receiver = receiver

    def open(self) -> Self:
        self._loop.wait(self._receiver.open())
        return self

    def receive(self, timeout: float | None = None) -> BlockingMessage:
        """The next message; raises `TimeoutError` when none comes in time."""
        receiving = asyncio.wait_for(self._receiver.receive(), timeout)
        return BlockingMessage(self._loop, self._loop.wait(receiving))

    def close(self) -> None:
        self._loop.wait(self._receiver.close())

    def __iter__(self) -> Iterator[BlockingMessage]:
        each = aiter(self._receiver)
        try:
            while (message := self._loop.wait(_next(each))) is not None:
                yield BlockingMessage(self._loop, message)
        finally:
            self._loop.wait(each.aclose())

    def __enter__(self) -> Self:
        self._loop.wait(self._receiver.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._receiver.__aexit__(kind, error, trace))


class BlockingService:
    """Answers in the background of `with`; `wait` keeps a program there."""

    def __init__(self, loop: EventLoopThread, service: RequestService) -> None:
        self._loop = loop
        self._service = service

    def wait(self) -> None:
        """Returns when the fabric is closed."""

        async def serve() -> None:
            await self._service

        self._loop.wait(serve())

    def __enter__(self) -> Self:
        self._loop.wait(self._service.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._service.__aexit__(kind, error, trace))


async def _next(
    each: AsyncIterator[asynchronous.ReceivedMessage],
) -> asynchronous.ReceivedMessage | None:
    return await anext(each, None)


# The fabric, for those who wait.

#: Answers a request; called in a thread of a pool, so it may wait.
BlockingHandler = Callable[[BlockingMessage], Body]


class BlockingFabric:
    """The patterns of `penstock.client.Fabric`. Options are passed on as they are."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, patience: float) -> None:
        self._loop = EventLoopThread()

        async def build() -> patterns.Fabric:
            return fabric.connect(url, tls=tls, patience=patience)

        self._fabric = self._loop.begin(build())

    @property
    def blocked(self) -> bool:
        async def ask() -> bool:
            return self._fabric.blocked

        return self._loop.wait(ask())

    def publish(
        self, address: str, body: Body, *, headers: Headers | None = None, **options: Any
    ) -> None:
        self._loop.wait(self._fabric.publish(address, body, headers=headers, **options))

    def publisher(self, address: str, **options: Any) -> BlockingSender:
        return BlockingSender(self._loop, self._fabric.publisher(address, **options))

    def subscribe(
        self, *patterns: str, name: str | None = None, **options: Any
    ) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._fabric.subscribe(*patterns, name=name, **options))

    def push(self, queue: str) -> BlockingSender:
        return BlockingSender(self._loop, self._fabric.push(queue))

    def pull(self, queue: str, **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._fabric.pull(queue, **options))

    def request(
        self, service: str, body: Body = b"", *, headers: Headers | None = None, **options: Any
    ) -> BlockingMessage:
        asking = self._fabric.request(service, body, headers=headers, **options)
        return BlockingMessage(self._loop, self._loop.wait(asking))

    def reply(self, service: str, **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._fabric.reply(service, **options))

    def serve(self, service: str, handler: BlockingHandler, **options: Any) -> BlockingService:
        async def answer(request: asynchronous.ReceivedMessage) -> Body:
            return await asyncio.to_thread(handler, BlockingMessage(self._loop, request))

        return BlockingService(self._loop, self._fabric.serve(service, answer, **options))

    def stream(self, name: str, *, subjects: Sequence[str] = (), **options: Any) -> BlockingSender:
        return BlockingSender(self._loop, self._fabric.stream(name, subjects=subjects, **options))

    def replay(self, stream: str, start: StreamStart = "first", **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._fabric.replay(stream, start, **options))

    def open(self) -> Self:
        self._loop.begin(self._fabric.open())
        return self

    def close(self) -> None:
        self._loop.end(self._fabric.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0
) -> BlockingFabric:
    """The fabric behind a URL, to be opened by `with`; see `penstock.client.connect`."""
    return BlockingFabric(url, tls, patience)
