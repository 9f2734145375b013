"""The client without `async`.

It has the same names, with `with` and `for` in place of `async with` and `async for`. A blocking
client runs the asynchronous one on an event loop in a thread of its own, so connections stay alive
while the program is busy. Any thread may use it. Ctrl-C ends a wait immediately.

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
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.client import fabric
from penstock.client.fabric import Fabric, StreamStart
from penstock.client.message import Body, Headers, ReceivedMessage
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.client.service import RequestService

__all__ = [
    "BlockingClient",
    "BlockingFabric",
    "BlockingHandler",
    "BlockingMessage",
    "BlockingReceiver",
    "BlockingSender",
    "BlockingService",
    "PublishReceipt",
    "connect",
]

T = TypeVar("T")


class EventLoopThread:
    """An event loop in a thread of its own; runs coroutines until `stop`."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="penstock client", daemon=True)
        self._thread.start()

    def wait(self, work: Awaitable[T]) -> T:
        """Run it on the loop; returns its result."""
        future = asyncio.run_coroutine_threadsafe(_as_coroutine(work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted wait leaves nothing running
            raise

    def call(self, function: Callable[[], T]) -> T:
        """`wait` for a function that needs the running loop."""

        async def call() -> T:
            return function()

        return self.wait(call())

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                yield self.wait(anext(items))
        except StopAsyncIteration:
            return
        finally:
            self.wait(items.aclose())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with self._runner:  # its end cancels the tasks that are left, and waits for them
            self._loop.run_forever()


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work


class AsyncClient(Protocol):
    async def open(self) -> Any: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=AsyncClient)


class BlockingClient(Generic[C]):
    """Runs an asynchronous client on an event loop in a thread of its own.

    A subclass has the client's methods, each with `self._loop.wait`. The thread ends with `close`,
    and if the client cannot be created or opened.
    """

    def __init__(self, create: Callable[[], C]) -> None:
        self._loop = EventLoopThread()
        try:
            self._client = self._loop.call(create)
        except BaseException:
            self._loop.stop()
            raise

    def open(self) -> Self:
        try:
            self._loop.wait(self._client.open())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def close(self) -> None:
        try:
            self._loop.wait(self._client.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingMessage:
    """A `penstock.client.ReceivedMessage`, whose settling and replying wait."""

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

    def __init__(self, loop: EventLoopThread, message: ReceivedMessage) -> None:
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

    def reply(self, body: Body = b"", *, headers: Headers | None = None) -> None:
        self._loop.wait(self._message.reply(body, headers=headers))

    def fail(self, error: BaseException) -> None:
        self._loop.wait(self._message.fail(error))


class PublishReceipt:
    """A posted message."""

    __slots__ = ("_confirmed", "_loop")

    def __init__(self, loop: EventLoopThread, confirmed: Awaitable[None]) -> None:
        self._loop = loop
        self._confirmed = confirmed

    def wait(self) -> None:
        """Returns when the broker has confirmed the message."""
        self._loop.wait(self._confirmed)


class AsyncBlock(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


B = TypeVar("B", bound=AsyncBlock)


class _BlockingBlock(Generic[B]):
    """`with` for an asynchronous object that has `async with`."""

    def __init__(self, loop: EventLoopThread, block: B) -> None:
        self._loop = loop
        self._block = block

    def __enter__(self) -> Self:
        self._loop.wait(self._block.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.wait(self._block.__aexit__(kind, error, trace))


class BlockingSender(_BlockingBlock[MessageSender]):
    def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        self._loop.wait(self._block.send(body, headers=headers, ttl=ttl, message_id=message_id))

    def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> PublishReceipt:
        posting = self._block.post(body, headers=headers, ttl=ttl, message_id=message_id)
        return PublishReceipt(self._loop, self._loop.wait(posting))

    def flush(self) -> None:
        self._loop.wait(self._block.flush())


class BlockingReceiver(_BlockingBlock[MessageReceiver]):
    def open(self) -> Self:
        self._loop.wait(self._block.open())
        return self

    def receive(self, timeout: float | None = None) -> BlockingMessage:
        """The next message; raises `TimeoutError` if none arrives in time."""
        receiving = asyncio.wait_for(self._block.receive(), timeout)
        return BlockingMessage(self._loop, self._loop.wait(receiving))

    def close(self) -> None:
        self._loop.wait(self._block.close())

    def __iter__(self) -> Iterator[BlockingMessage]:
        messages = self._loop.iterate(aiter(self._block))
        attach = getattr(self._block, "attach", None)  # of a `TracedReceiver`
        try:
            for message in messages:
                if attach is not None:  # its span is current in the program's thread
                    attach()
                yield BlockingMessage(self._loop, message)
        finally:
            messages.close()


class BlockingService(_BlockingBlock[RequestService]):
    """Replies in the background of `with`."""

    def wait(self) -> None:
        """Returns when the fabric is closed."""
        self._loop.wait(self._block)


#: Returns the reply to a request. It is called in a thread of a pool, so it may block.
BlockingHandler = Callable[[BlockingMessage], Body]


class BlockingFabric(BlockingClient[Fabric]):
    """The patterns of `penstock.client.Fabric`; options are passed on."""

    @property
    def blocked(self) -> bool:
        return self._loop.call(lambda: self._client.blocked)

    def publish(
        self, address: str, body: Body, *, headers: Headers | None = None, **options: Any
    ) -> None:
        self._loop.wait(self._client.publish(address, body, headers=headers, **options))

    def publisher(self, address: str, **options: Any) -> BlockingSender:
        return BlockingSender(self._loop, self._client.publisher(address, **options))

    def subscribe(
        self, *patterns: str, name: str | None = None, **options: Any
    ) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._client.subscribe(*patterns, name=name, **options))

    def push(self, queue: str) -> BlockingSender:
        return BlockingSender(self._loop, self._client.push(queue))

    def pull(self, queue: str, **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._client.pull(queue, **options))

    def request(
        self, service: str, body: Body = b"", *, headers: Headers | None = None, **options: Any
    ) -> BlockingMessage:
        requesting = self._client.request(service, body, headers=headers, **options)
        return BlockingMessage(self._loop, self._loop.wait(requesting))

    def reply(self, service: str, **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._client.reply(service, **options))

    def serve(self, service: str, handler: BlockingHandler, **options: Any) -> BlockingService:
        async def reply(request: ReceivedMessage) -> Body:
            return await asyncio.to_thread(handler, BlockingMessage(self._loop, request))

        return BlockingService(self._loop, self._client.serve(service, reply, **options))

    def stream(self, name: str, *, subjects: Sequence[str] = (), **options: Any) -> BlockingSender:
        return BlockingSender(self._loop, self._client.stream(name, subjects=subjects, **options))

    def replay(self, stream: str, start: StreamStart = "first", **options: Any) -> BlockingReceiver:
        return BlockingReceiver(self._loop, self._client.replay(stream, start, **options))


def connect(
    url: str,
    *,
    tls: ssl.SSLContext | None = None,
    retry_seconds: float = 0.0,
    patience: float | None = None,
) -> BlockingFabric:
    """The fabric of a URL, opened by `with`; see `penstock.client.connect`."""
    return BlockingFabric(
        lambda: fabric.connect(url, tls=tls, retry_seconds=retry_seconds, patience=patience)
    )
