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
from functools import partial
from typing import Any, Final, Protocol, Self

from penstock.core.basic_properties import (
    BasicProperties,
    decode_route,
    encode_header,
    encode_route,
)
from penstock.core.errors import ChannelError, NoRoute, PenstockError, QueueFull
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import error_from_close
from penstock.wire.amqp091.frames import encode_basic_ack, encode_basic_publish
from penstock.wire.amqp091.methods import (
    MethodArguments,
    ReceivedMethod,
    encode_method_frame,
    reply_id,
)

Arguments = Mapping[str, Any]

#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0

#: Called with None when the broker has confirmed a message, else with the error.
PublishOutcome = Callable[[PenstockError | None], None]


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

    def call(self, request: int, /, **arguments: Any) -> asyncio.Future[MethodArguments]:
        """Send a method at once; the future is the arguments of its `-ok`."""
        if self.failure is not None:
            refused: asyncio.Future[MethodArguments] = asyncio.get_running_loop().create_future()
            fail_future(refused, self.failure)
            return refused
        self._connection.send(encode_method_frame(self.number, request, **arguments))
        return self._answers.expect(reply_id(request))

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
        await self.call(
            methods.EXCHANGE_DECLARE,
            exchange=name,
            type=kind,
            durable=durable,
            passive=passive,
            arguments=arguments or {},
        )

    async def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool | None = None,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> MethodArguments:
        """An exclusive queue is auto-delete unless `auto_delete` says otherwise. The reply has the
        name of the queue, which the broker chooses if `name` is empty."""
        return await self.call(
            methods.QUEUE_DECLARE,
            queue=name,
            durable=durable,
            exclusive=exclusive,
            passive=passive,
            auto_delete=exclusive if auto_delete is None else auto_delete,
            arguments=arguments or {},
        )

    async def delete_queue(self, name: str) -> None:
        await self.call(methods.QUEUE_DELETE, queue=name)

    async def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Arguments | None = None
    ) -> None:
        await self.call(
            methods.QUEUE_BIND,
            queue=queue,
            exchange=exchange,
            routing_key=key,
            arguments=arguments or {},
        )

    async def unbind(
        self, queue: str, exchange: str, key: str = "", arguments: Arguments | None = None
    ) -> None:
        await self.call(
            methods.QUEUE_UNBIND,
            queue=queue,
            exchange=exchange,
            routing_key=key,
            arguments=arguments or {},
        )

    async def bind_exchange(self, destination: str, source: str, key: str = "") -> None:
        await self.call(
            methods.EXCHANGE_BIND, destination=destination, source=source, routing_key=key
        )

    async def prefetch(self, count: int) -> None:
        """Of consumers that begin from now on."""
        await self.call(methods.BASIC_QOS, prefetch_count=count)

    async def consume(
        self, queue: str, tag: str, arguments: Arguments | None = None, *, no_ack: bool = False
    ) -> None:
        await self.call(
            methods.BASIC_CONSUME,
            queue=queue,
            consumer_tag=tag,
            no_ack=no_ack,
            arguments=arguments or {},
        )

    async def cancel(self, tag: str) -> None:
        await self.call(methods.BASIC_CANCEL, consumer_tag=tag)

    async def get(self, queue: str, *, no_ack: bool = False) -> AmqpContent | None:
        """The next message of a queue, if there is one."""
        self._check()
        get = encode_method_frame(self.number, methods.BASIC_GET, queue=queue, no_ack=no_ack)
        self._connection.send(get)
        return await self._answers.expect_message(no_ack=no_ack)

    async def select(self) -> None:
        """From here on, what is published and acknowledged happens at `commit`, or not at all."""
        await self.call(methods.TX_SELECT)

    def commit(self) -> asyncio.Future[MethodArguments]:
        return self.call(methods.TX_COMMIT)

    def rollback(self) -> asyncio.Future[MethodArguments]:
        return self.call(methods.TX_ROLLBACK)

    async def confirm(self) -> None:
        """From here on, the broker says of each message when it has it safe."""
        await self.call(methods.CONFIRM_SELECT)
        self._confirms = self._confirms or PublisherConfirms()

    async def close(self) -> None:
        """Never raises: a closed channel is closed, and a broker that does not answer within
        `CLOSE_SECONDS` is not waited for."""
        if self.failure is None:
            await asyncio.wait([self.abandon()], timeout=CLOSE_SECONDS)

    async def closed(self) -> PenstockError:
        """Returns the reason when the channel is closed; takes the place of `on_closed`."""
        if self.failure is None:
            closed = asyncio.Event()
            self.on_closed = lambda _: closed.set()
            await closed.wait()
        assert self.failure is not None
        return self.failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def abandon(self) -> asyncio.Future[MethodArguments]:
        """`close`, for who does not wait: its number is another's once the broker has answered."""
        return self.call(methods.CHANNEL_CLOSE, reply_code=200)

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
        """`publish`, with a future that is done when the broker has confirmed the message. The
        channel is in confirm mode."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        route, header = encode_route(exchange, key), encode_header(properties, len(body))
        outcome = partial(_resolve, confirmed)
        self.post_encoded(route, header, body, outcome, mandatory=mandatory)
        return confirmed

    def post_encoded(
        self,
        route: bytes,
        header: bytes,
        body: bytes,
        on_outcome: PublishOutcome,
        *,
        mandatory: bool = False,
    ) -> None:
        """`post` of an encoded message, with a callback in place of a future."""
        assert self._confirms is not None, "confirm() comes first"
        self._check()
        self._send(route, header, body, mandatory)
        self._confirms.add_awaited(route, header, on_outcome)

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
            self._connection.send(encode_basic_ack(self.number, tag, multiple))

    def reject(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        if self.failure is None:
            nack = encode_method_frame(
                self.number,
                methods.BASIC_NACK,
                delivery_tag=tag,
                multiple=multiple,
                requeue=requeue,
            )
            self._connection.send(nack)

    # What the connection says.

    def hear(self, received: ReceivedMethod) -> None:
        method, arguments = received
        match method.id:
            case methods.BASIC_ACK | methods.BASIC_NACK:
                if self._confirms is not None:
                    refused = method.id == methods.BASIC_NACK
                    self._confirms.settle(
                        arguments.delivery_tag, multiple=arguments.multiple, refused=refused
                    )
            case methods.BASIC_GET_EMPTY:
                self._answers.hear_message(None)
            case methods.BASIC_CANCEL:
                self.on_cancelled(arguments.consumer_tag)
            case methods.CHANNEL_CLOSE:
                self._connection.send(encode_method_frame(self.number, methods.CHANNEL_CLOSE_OK))
                self._connection.closed(self.number)
                code, text = arguments.reply_code, arguments.reply_text
                self.fail(error_from_close(code, text, self._connection.address))
            case methods.CHANNEL_CLOSE_OK:
                if self._answers.hear(received):  # else it is for who had this number before
                    self._connection.closed(self.number)
                    self.on_closed = _ignore
                    self.fail(ChannelError("this channel was closed"))
            case methods.CHANNEL_FLOW:
                answer = encode_method_frame(
                    self.number, methods.CHANNEL_FLOW_OK, active=arguments.active
                )
                self._connection.send(answer)
            case _:
                self._answers.hear(received)

    def hear_content(self, content: AmqpContent) -> None:
        """A message that was asked for, or that nobody takes."""
        if content.method != methods.BASIC_RETURN:
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
    __slots__ = ("header", "on_outcome", "returned", "route")

    def __init__(self, route: bytes, header: bytes, on_outcome: PublishOutcome | None) -> None:
        self.route = route
        self.header = header
        self.on_outcome = on_outcome
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

    def add_awaited(self, route: bytes, header: bytes, on_outcome: PublishOutcome) -> None:
        """Published; `on_outcome` is called when it is confirmed, refused or returned, and when
        the channel ends."""
        self._last += 1
        self._open[self._last] = _UnconfirmedPublish(route, header, on_outcome)

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
            if each is not None and each.on_outcome is not None:
                each.on_outcome(error)
        for _, future in waiting:
            fail_future(future, error)

    def _end(self, published: _UnconfirmedPublish | None, refused: bool) -> None:
        problem: PenstockError | None = None
        if refused:
            problem = QueueFull("the broker refused a message: its queue is full")
        elif published is not None and published.returned:
            exchange, key = decode_route(published.route)
            problem = NoRoute(
                f"unroutable message: no queue is bound to exchange {exchange!r} with a key that "
                f"matches {key!r}"
            )
        if published is None or published.on_outcome is None:
            self._failure = self._failure or problem
        else:
            published.on_outcome(problem)

    def _release(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for most, future in waiting:
            if len(self._open) > most and self._failure is None:
                self._waiting.append((most, future))
            elif not future.done():
                future.set_result(None)


def fail_future(future: asyncio.Future[Any], error: PenstockError) -> None:
    """Without a warning of asyncio's if nothing awaits the future any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def _resolve(future: asyncio.Future[None], error: PenstockError | None) -> None:
    if error is not None:
        fail_future(future, error)
    elif not future.done():
        future.set_result(None)


# Who waits for which answer: a broker gives those of one kind in the order of the calls.
#
# Whoever waits may give up (cancel) at any time. The answer still comes, and is nobody else's: it
# is taken in the name of the one who left.


class PendingReplies:
    """Of one channel, to its calls and to its gets."""

    __slots__ = ("_calls", "_gets")

    def __init__(self) -> None:
        self._calls: dict[int, deque[asyncio.Future[MethodArguments]]] = {}
        self._gets: deque[tuple[asyncio.Future[AmqpContent | None], bool]] = deque()

    def expect(self, reply: int) -> asyncio.Future[MethodArguments]:
        future: asyncio.Future[MethodArguments] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(reply, deque()).append(future)
        return future

    def expect_message(self, *, no_ack: bool) -> asyncio.Future[AmqpContent | None]:
        future: asyncio.Future[AmqpContent | None] = asyncio.get_running_loop().create_future()
        self._gets.append((future, no_ack))
        return future

    def hear(self, answer: ReceivedMethod) -> bool:
        """Whether somebody had asked for it."""
        waiting = self._calls.get(answer.id)
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(answer.arguments)
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
        waiting: list[asyncio.Future[Any]] = [each for of in self._calls.values() for each in of]
        waiting += [future for future, _ in self._gets]
        self._calls.clear()
        self._gets.clear()
        for future in waiting:
            fail_future(future, error)
