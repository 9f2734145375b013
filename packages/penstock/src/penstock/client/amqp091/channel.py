"""A channel: calls and their answers, deliveries, publishes and their confirms.

Calls may be made one behind the other without waiting: a broker answers those of one kind in order,
though a commit, which waits for the disk, may be overtaken by others. What is published goes out at
the end of the loop's turn, all of it in one write. A call or a wait may be given up (cancelled) at
any time; what it would have brought is not lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import ChannelError, NoRoute, PenstockError, QueueFull
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import (
    AmqpContent,
    encode_basic_publish,
    encode_client_ack,
    encode_pamqp_method,
)
from penstock.wire.amqp091.errors import error_from_close

_Answer = TypeVar("_Answer", bound=Method)
Arguments = Mapping[str, Any]


class ChannelConnection(Protocol):
    """The connection, as a channel sees it."""

    address: AmqpAddress
    flowing: bool  #: whether what is sent now leaves soon

    @property
    def frame_max(self) -> int: ...

    def send(self, data: bytes) -> None: ...

    def closed(self, channel: int) -> None: ...

    async def flow(self) -> None: ...


class AmqpClientChannel:
    """Had from a connection. What comes is told to the callbacks, on the loop."""

    def __init__(self, number: int, connection: ChannelConnection) -> None:
        self.number = number
        self.failure: PenstockError | None = None  #: why it is closed
        #: Told of all messages that one read brought, at once.
        self.on_deliveries: Callable[[list[AmqpContent]], None] = _ignore
        self.on_closed: Callable[[PenstockError], None] = _ignore
        #: The broker has ended a consumer, as when its queue is deleted.
        self.on_cancelled: Callable[[str], None] = _ignore
        #: No queue took a message that was mandatory, and nobody waits for its confirm.
        self.on_returned: Callable[[AmqpContent], None] = _ignore
        self._connection = connection
        self._answers = PendingReplies()
        self._confirms: PublisherConfirms | None = None

    # Calls.

    def call(self, request: Method, answer: type[_Answer]) -> asyncio.Future[_Answer]:
        """Sent at once; await it for the answer, or call again meanwhile."""
        if self.failure is not None:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            fail_future(refused, self.failure)
            return refused
        self._connection.send(encode_pamqp_method(self.number, request))
        return self._answers.expect(answer)

    async def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """Passive: only see whether it is there."""
        declare = commands.Exchange.Declare(
            exchange=name,
            exchange_type=kind,
            durable=durable,
            passive=passive,
            arguments=dict(arguments or {}),
        )
        await self.call(declare, commands.Exchange.DeclareOk)

    async def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> commands.Queue.DeclareOk:
        """An exclusive one goes with its last consumer, or with the connection."""
        declare = commands.Queue.Declare(
            queue=name,
            durable=durable,
            exclusive=exclusive,
            passive=passive,
            auto_delete=exclusive,
            arguments=dict(arguments or {}),
        )
        return await self.call(declare, commands.Queue.DeclareOk)

    async def delete_queue(self, name: str) -> None:
        await self.call(commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)

    async def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Arguments | None = None
    ) -> None:
        bind = commands.Queue.Bind(
            queue=queue, exchange=exchange, routing_key=key, arguments=dict(arguments or {})
        )
        await self.call(bind, commands.Queue.BindOk)

    async def unbind(self, queue: str, exchange: str, key: str = "") -> None:
        unbind = commands.Queue.Unbind(queue=queue, exchange=exchange, routing_key=key)
        await self.call(unbind, commands.Queue.UnbindOk)

    async def bind_exchange(self, destination: str, source: str, key: str = "") -> None:
        bind = commands.Exchange.Bind(destination=destination, source=source, routing_key=key)
        await self.call(bind, commands.Exchange.BindOk)

    async def prefetch(self, count: int) -> None:
        """Of consumers that begin from now on."""
        await self.call(commands.Basic.Qos(prefetch_count=count), commands.Basic.QosOk)

    async def consume(
        self, queue: str, tag: str, arguments: Arguments | None = None, *, no_ack: bool = False
    ) -> None:
        consume = commands.Basic.Consume(
            queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=dict(arguments or {})
        )
        await self.call(consume, commands.Basic.ConsumeOk)

    async def cancel(self, tag: str) -> None:
        await self.call(commands.Basic.Cancel(consumer_tag=tag), commands.Basic.CancelOk)

    async def get(self, queue: str, *, no_ack: bool = False) -> AmqpContent | None:
        """The next message of a queue, if there is one."""
        self._check()
        get = commands.Basic.Get(queue=queue, no_ack=no_ack)
        self._connection.send(encode_pamqp_method(self.number, get))
        return await self._answers.expect_message(no_ack=no_ack)

    async def select(self) -> None:
        """From here on, what is published and acknowledged happens at `commit`, or not at all."""
        await self.call(commands.Tx.Select(), commands.Tx.SelectOk)

    def commit(self) -> asyncio.Future[commands.Tx.CommitOk]:
        return self.call(commands.Tx.Commit(), commands.Tx.CommitOk)

    def rollback(self) -> asyncio.Future[commands.Tx.RollbackOk]:
        return self.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)

    async def confirm(self) -> None:
        """From here on, the broker says of each message when it has it safe."""
        await self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._confirms = self._confirms or PublisherConfirms()

    async def close(self) -> None:
        if self.failure is None:
            await asyncio.shield(self.abandon())

    def abandon(self) -> asyncio.Future[commands.Channel.CloseOk]:
        """`close`, for who does not wait: its number is another's once the broker has answered."""
        return self.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)

    # Messages.

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: BasicProperties,
        *,
        mandatory: bool = False,
    ) -> None:
        """Sent at the end of the turn. Whether it is safe, `room` tells if the channel confirms."""
        route, header = encode_route(exchange, key), encode_header(properties, len(body))
        self.publish_encoded(route, header, body, mandatory=mandatory)

    def publish_encoded(
        self, route: bytes, header: bytes, body: bytes, *, mandatory: bool = False
    ) -> None:
        """`publish` of what is written already (`core.properties`), or came so."""
        self._check()
        self._send(route, header, body, mandatory)
        if self._confirms is not None:
            self._confirms.add(route, header, mandatory=mandatory)

    def post(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: BasicProperties,
        *,
        mandatory: bool = False,
    ) -> asyncio.Future[None]:
        """Sent like `publish`; done when the broker has it safe. The channel confirms."""
        assert self._confirms is not None, "confirm() comes first"
        self._check()
        route, header = encode_route(exchange, key), encode_header(properties, len(body))
        self._send(route, header, body, mandatory)
        return self._confirms.add_awaited(route, header)

    async def publish_safely(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: BasicProperties,
        *,
        mandatory: bool = False,
    ) -> None:
        """`post`, once the broker and the socket take more; returns when it is safe."""
        if not self._connection.flowing:
            await self._connection.flow()
        await self.post(exchange, key, body, properties, mandatory=mandatory)

    async def room(self, most: int) -> None:
        """Returns when no more than so many messages are unconfirmed, and the connection takes
        more; 0 is when all are safe. Raises what became of a message that `publish` sent."""
        assert self._confirms is not None, "confirm() comes first"
        self._check()
        if not self._connection.flowing:
            await self._connection.flow()
        await self._confirms.room(most)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if self.failure is None:
            self._connection.send(encode_client_ack(self.number, tag, multiple=multiple))

    def reject(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        if self.failure is None:
            value = commands.Basic.Nack(tag, multiple, requeue)
            self._connection.send(encode_pamqp_method(self.number, value))

    # What the connection says.

    def hear(self, method: Method) -> None:
        match method:
            case commands.Basic.Ack() | commands.Basic.Nack():
                if self._confirms is not None:
                    refused = isinstance(method, commands.Basic.Nack)
                    tag, multiple = method.delivery_tag or 0, bool(method.multiple)
                    self._confirms.settle(tag, multiple=multiple, refused=refused)
            case commands.Basic.GetEmpty():
                self._answers.hear_message(None)
            case commands.Basic.Cancel():
                self.on_cancelled(method.consumer_tag or "")
            case commands.Channel.Close():
                self._connection.send(encode_pamqp_method(self.number, commands.Channel.CloseOk()))
                self._connection.closed(self.number)
                code, text = method.reply_code or 0, method.reply_text or ""
                self.fail(error_from_close(code, text, self._connection.address))
            case commands.Channel.CloseOk():
                if self._answers.hear(method):  # else it is for who had this number before
                    self._connection.closed(self.number)
                    self.on_closed = _ignore
                    self.fail(ChannelError("this channel was closed"))
            case commands.Channel.Flow():
                answer = commands.Channel.FlowOk(method.active)
                self._connection.send(encode_pamqp_method(self.number, answer))
            case _:
                self._answers.hear(method)

    def hear_content(self, content: AmqpContent) -> None:
        """A message that was asked for, or that nobody takes."""
        if not isinstance(content.method, commands.Basic.Return):
            if self._answers.hear_message(content):
                self.reject(content.tag, requeue=True)
        elif self._confirms is None or not self._confirms.came_back(content):
            self.on_returned(content)

    def fail(self, error: PenstockError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._answers.fail(error)
        if self._confirms is not None:
            self._confirms.fail(error)
        self.on_closed(error)

    def _send(self, route: bytes, header: bytes, body: bytes, mandatory: bool) -> None:
        most = self._connection.frame_max
        self._connection.send(
            encode_basic_publish(self.number, route, header, body, most, mandatory=mandatory)
        )

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


def _ignore(_: object) -> None:
    pass


# What was published and is not yet known to be safe, and who waits for that.
#
# A broker counts publishes from one, and confirms a number or all up to one. A message it could not
# route comes back first, and is confirmed all the same; which of several it was is told by its
# route, and by its properties where routes are equal.


class _UnconfirmedPublish:
    __slots__ = ("future", "header", "returned", "route")

    def __init__(self, route: bytes, header: bytes, future: asyncio.Future[None] | None) -> None:
        self.route = route
        self.header = header
        self.future = future
        self.returned = False


class PublisherConfirms:
    """Of one channel."""

    __slots__ = ("_failure", "_last", "_open", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, _UnconfirmedPublish | None] = {}  # by number, in order
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: PenstockError | None = None  # of what nobody waits for by itself

    @property
    def open(self) -> int:
        """How many there are."""
        return len(self._open)

    def add(self, route: bytes, header: bytes, *, mandatory: bool) -> None:
        """Published; whoever cares asks `room`."""
        self._last += 1
        self._open[self._last] = _UnconfirmedPublish(route, header, None) if mandatory else None

    def add_awaited(self, route: bytes, header: bytes) -> asyncio.Future[None]:
        """Published; the future is done when it is safe."""
        self._last += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[self._last] = _UnconfirmedPublish(route, header, future)
        return future

    async def room(self, most: int) -> None:
        """Returns when no more than so many are open; raises what became of one meanwhile."""
        if len(self._open) > most and self._failure is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((most, future))
            await future
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def settle(self, tag: int, *, multiple: bool, refused: bool) -> None:
        if multiple:
            settled = []
            for each in self._open:
                if each > tag:
                    break
                settled.append(each)
            for each in settled:
                self._end(self._open.pop(each), refused)
        elif tag in self._open:
            self._end(self._open.pop(tag), refused)
        self._release()

    def came_back(self, content: AmqpContent) -> bool:
        """Whether it was one of those."""
        alike = [
            each
            for each in self._open.values()
            if each is not None and not each.returned and each.route == content.route
        ]
        if not alike:
            return False
        same = (each for each in alike if each.header == content.header)
        next(same, alike[0]).returned = True
        return True

    def fail(self, error: PenstockError) -> None:
        """No more will be heard of them."""
        published, self._open = list(self._open.values()), {}
        waiting, self._waiting = self._waiting, deque()
        for each in published:
            if each is not None and each.future is not None:
                fail_future(each.future, error)
        for _, future in waiting:
            fail_future(future, error)

    def _end(self, published: _UnconfirmedPublish | None, refused: bool) -> None:
        problem: PenstockError | None = None
        if refused:
            problem = QueueFull("the broker refused a message: its queue is full")
        elif published is not None and published.returned:
            name = published.route[1 : 1 + published.route[0]].decode("utf-8", "replace")
            problem = NoRoute(f"no queue takes what is sent to exchange {name!r}")
        future = None if published is None else published.future
        if future is None:
            self._failure = self._failure or problem
        elif problem is not None:
            fail_future(future, problem)
        elif not future.done():
            future.set_result(None)

    def _release(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for most, future in waiting:
            if len(self._open) > most and self._failure is None:
                self._waiting.append((most, future))
            elif not future.done():
                future.set_result(None)


def fail_future(future: asyncio.Future[None], error: PenstockError) -> None:
    """Told to whoever waits; and no word on the console if nobody does any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()


# Who waits for which answer: a broker gives those of one kind in the order of the calls.
#
# Whoever waits may give up (cancel) at any time. The answer still comes, and is nobody else's: it
# is taken in the name of the one who left.


class PendingReplies:
    """Of one channel, to its calls and to its gets."""

    __slots__ = ("_calls", "_gets")

    def __init__(self) -> None:
        self._calls: dict[type[Method], deque[asyncio.Future[Any]]] = {}
        self._gets: deque[tuple[asyncio.Future[AmqpContent | None], bool]] = deque()

    def expect(self, answer: type[_Answer]) -> asyncio.Future[_Answer]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(answer, deque()).append(future)
        return cast("asyncio.Future[_Answer]", future)

    def expect_message(self, *, no_ack: bool) -> asyncio.Future[AmqpContent | None]:
        future: asyncio.Future[AmqpContent | None] = asyncio.get_running_loop().create_future()
        self._gets.append((future, no_ack))
        return future

    def hear(self, answer: Method) -> bool:
        """Whether somebody had asked for it."""
        waiting = self._calls.get(type(answer))
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(answer)
        return True

    def hear_message(self, content: AmqpContent | None) -> bool:
        """Whether it has to be given back, for who asked for it has left."""
        if not self._gets:
            return False
        future, no_ack = self._gets.popleft()
        if future.done():
            return content is not None and not no_ack
        future.set_result(content)
        return False

    def fail(self, error: PenstockError) -> None:
        waiting = [each for of in self._calls.values() for each in of]
        waiting += [future for future, _ in self._gets]
        self._calls.clear()
        self._gets.clear()
        for future in waiting:
            fail_future(future, error)
