"""A channel: calls and their answers, deliveries, confirms.

Calls may be made one behind the other without waiting: a broker answers those of one kind in order,
though a commit, which waits for the disk, may be overtaken by others. What is published goes out at
the end of the loop's turn, all of it in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.core.errors import NoRoute, PenstockError, QueueFull
from penstock.jobs.link.contents import Properties, short_string, write_header
from penstock.jobs.link.faults import closed_for
from penstock.jobs.link.frames import Content, write_ack, write_method, write_publish

_Answer = TypeVar("_Answer", bound=Method)
Arguments = Mapping[str, Any]


class Sender(Protocol):
    """The connection, as a channel sees it."""

    frame_max: int

    def send(self, data: bytes) -> None: ...

    def closed(self, channel: int) -> None: ...


class Channel:
    def __init__(self, number: int, wire: Sender) -> None:
        self.number = number
        self.failure: PenstockError | None = None
        #: Told of all messages that one read brought, at once.
        self.on_deliveries: Callable[[list[Content]], None] = lambda _: None
        self.on_closed: Callable[[PenstockError], None] = lambda _: None
        self.on_cancelled: Callable[[str], None] = lambda _: None
        self._wire = wire
        self._calls: dict[type[Method], deque[asyncio.Future[Method]]] = {}
        self._got: deque[asyncio.Future[Content | None]] = deque()
        self._published = 0
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._returned: PenstockError | None = None

    # Calls.

    def call(self, request: Method, answer: type[_Answer]) -> asyncio.Future[_Answer]:
        """Sent at once; await it for the answer, or call again meanwhile."""
        future: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
        else:
            self._calls.setdefault(answer, deque()).append(future)
            self._wire.send(write_method(self.number, request))
        future.add_done_callback(_seen)
        return cast("asyncio.Future[_Answer]", future)

    async def declare_exchange(self, name: str, kind: str, *, durable: bool = True) -> None:
        await self.call(
            commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=durable),
            commands.Exchange.DeclareOk,
        )

    async def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> commands.Queue.DeclareOk:
        return await self.call(
            commands.Queue.Declare(
                queue=name,
                durable=durable,
                exclusive=exclusive,
                passive=passive,
                auto_delete=exclusive,
                arguments=dict(arguments or {}),
            ),
            commands.Queue.DeclareOk,
        )

    async def bind(self, queue: str, exchange: str, key: str = "") -> None:
        await self.call(
            commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key),
            commands.Queue.BindOk,
        )

    async def prefetch(self, count: int) -> None:
        """Of consumers that begin from now on."""
        await self.call(commands.Basic.Qos(prefetch_count=count), commands.Basic.QosOk)

    async def consume(self, queue: str, tag: str, arguments: Arguments | None = None) -> None:
        await self.call(
            commands.Basic.Consume(queue=queue, consumer_tag=tag, arguments=dict(arguments or {})),
            commands.Basic.ConsumeOk,
        )

    async def cancel(self, tag: str) -> None:
        await self.call(commands.Basic.Cancel(consumer_tag=tag), commands.Basic.CancelOk)

    async def get(self, queue: str) -> Content | None:
        """The next message of a queue, if there is one."""
        future: asyncio.Future[Content | None] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure
        self._got.append(future)
        self._wire.send(write_method(self.number, commands.Basic.Get(queue=queue)))
        return await future

    async def select(self) -> None:
        """From here on, what is published and acknowledged happens at `commit`, or not at all."""
        await self.call(commands.Tx.Select(), commands.Tx.SelectOk)

    def commit(self) -> asyncio.Future[commands.Tx.CommitOk]:
        return self.call(commands.Tx.Commit(), commands.Tx.CommitOk)

    async def confirm(self) -> None:
        await self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    async def close(self) -> None:
        if self.failure is None:
            await self.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
            self._wire.closed(self.number)

    # Messages.

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        said: Properties,
        *,
        mandatory: bool = False,
    ) -> None:
        route = short_string(exchange) + short_string(key)
        header = write_header(len(body), said)
        self._wire.send(
            write_publish(
                self.number, route, header, body, self._wire.frame_max, mandatory=mandatory
            )
        )

    async def publish_safely(
        self, exchange: str, key: str, body: bytes, said: Properties, *, mandatory: bool = False
    ) -> None:
        """Returns when the broker has it safe; the channel confirms."""
        if self.failure is not None:
            raise self.failure
        self._published += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconfirmed[self._published] = future
        self.publish(exchange, key, body, said, mandatory=mandatory)
        await future

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if self.failure is None:
            self._wire.send(write_ack(self.number, tag, multiple=multiple))

    def reject(self, tag: int, *, requeue: bool) -> None:
        if self.failure is None:
            value = commands.Basic.Reject(delivery_tag=tag, requeue=requeue)
            self._wire.send(write_method(self.number, value))

    # What the connection says.

    def hear(self, method: Method) -> None:
        match method:
            case commands.Basic.Ack():
                self._settle(method.delivery_tag or 0, bool(method.multiple), None)
            case commands.Basic.Nack():
                error = QueueFull("the broker refused a message: its queue is full")
                self._settle(method.delivery_tag or 0, bool(method.multiple), error)
            case commands.Basic.GetEmpty():
                self._got.popleft().set_result(None)
            case commands.Basic.Cancel():
                self.on_cancelled(method.consumer_tag or "")
            case commands.Channel.Close():
                self._wire.send(write_method(self.number, commands.Channel.CloseOk()))
                self._wire.closed(self.number)
                self.fail(closed_for(method.reply_code or 0, method.reply_text or ""))
            case commands.Channel.Flow():
                answer = commands.Channel.FlowOk(method.active)
                self._wire.send(write_method(self.number, answer))
            case _:
                if waiting := self._calls.get(type(method)):
                    future = waiting.popleft()
                    if not future.done():
                        future.set_result(method)

    def hear_content(self, content: Content) -> None:
        """A message that was asked for, or that nobody takes."""
        if isinstance(content.method, commands.Basic.Return):
            exchange = content.method.exchange
            self._returned = NoRoute(f"no queue takes what is sent to exchange {exchange!r}")
        else:
            future = self._got.popleft()
            if not future.done():
                future.set_result(content)

    def fail(self, error: PenstockError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        waiting: list[asyncio.Future[Any]] = [each for of in self._calls.values() for each in of]
        waiting += [*self._got, *self._unconfirmed.values()]
        self._calls.clear()
        self._got.clear()
        self._unconfirmed.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, even if nobody waits any more
        self.on_closed(error)

    def _settle(self, tag: int, multiple: bool, error: PenstockError | None) -> None:
        returned, self._returned = self._returned, None
        tags = [each for each in self._unconfirmed if each <= tag] if multiple else [tag]
        for each in tags:
            future = self._unconfirmed.pop(each, None)
            if future is None or future.done():
                continue
            if problem := error or (returned if each == tag else None):
                future.set_exception(problem)
            else:
                future.set_result(None)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
