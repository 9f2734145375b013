"""A channel of the AMQP 0-9-1 client: calls, deliveries, publishes and confirms.

Calls can be pipelined: a broker answers methods of one kind in order. All frames of one iteration
of the loop are one write. A call can be cancelled at any time; its late answer is discarded, and a
message that a cancelled `get` would have returned is requeued.
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
    """What a channel needs of its connection."""

    address: AmqpAddress
    flowing: bool  #: neither the broker nor a full socket buffer holds publishers up

    @property
    def frame_max(self) -> int: ...

    def send(self, data: bytes) -> None: ...

    def closed(self, channel: int) -> None: ...

    async def flow(self) -> None: ...


class AmqpClientChannel:
    """Opened by `AmqpClientConnection.channel`. The callbacks are called on the loop."""

    def __init__(self, number: int, connection: ChannelConnection) -> None:
        self.number = number
        self.failure: PenstockError | None = None  #: why it is closed
        #: Called with all deliveries of one read of the socket.
        self.on_deliveries: Callable[[list[AmqpContent]], None] = _ignore
        self.on_closed: Callable[[PenstockError], None] = _ignore
        #: The broker has cancelled a consumer, because its queue was deleted, say.
        self.on_cancelled: Callable[[str], None] = _ignore
        #: A mandatory message was returned whose confirm is not awaited.
        self.on_returned: Callable[[AmqpContent], None] = _ignore
        self._connection = connection
        self._replies = PendingReplies()
        self._confirms: PublisherConfirms | None = None

    # Calls.

    def call(self, request: int, /, **arguments: Any) -> asyncio.Future[MethodArguments]:
        """Send a method at once; the future is the arguments of its `-ok`."""
        if self.failure is not None:
            refused: asyncio.Future[MethodArguments] = asyncio.get_running_loop().create_future()
            fail_future(refused, self.failure)
            return refused
        self._connection.send(encode_method_frame(self.number, request, **arguments))
        return self._replies.expect(reply_id(request))

    async def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
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
        """For consumers that are started from now on."""
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
        self._check()
        get = encode_method_frame(self.number, methods.BASIC_GET, queue=queue, no_ack=no_ack)
        self._connection.send(get)
        return await self._replies.expect_get(no_ack=no_ack)

    async def select(self) -> None:
        """Start a transaction: publishes and acknowledgements take effect at `commit`."""
        await self.call(methods.TX_SELECT)

    def commit(self) -> asyncio.Future[MethodArguments]:
        return self.call(methods.TX_COMMIT)

    def rollback(self) -> asyncio.Future[MethodArguments]:
        return self.call(methods.TX_ROLLBACK)

    async def confirm(self) -> None:
        """Put the channel into confirm mode."""
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
        """`close` without waiting. The channel number is reused when the broker has answered."""
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
        """In confirm mode, `wait_for_confirms` raises the error of a refused message."""
        route, header = encode_route(exchange, key), encode_header(properties, len(body))
        self.publish_encoded(route, header, body, mandatory=mandatory)

    def publish_encoded(
        self, route: bytes, header: bytes, body: bytes, *, mandatory: bool = False
    ) -> None:
        """`publish` of an encoded message (`core.basic_properties`)."""
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

    async def publish_confirmed(
        self,
        exchange: str,
        key: str,
        body: bytes,
        properties: BasicProperties,
        *,
        mandatory: bool = False,
    ) -> None:
        """`post` when the connection is flowing; returns when the message is confirmed."""
        if not self._connection.flowing:
            await self._connection.flow()
        await self.post(exchange, key, body, properties, mandatory=mandatory)

    async def wait_for_confirms(self, most: int = 0) -> None:
        """Returns when at most so many messages are unconfirmed and the connection is flowing.
        Raises if the broker has refused or returned a message of `publish`."""
        assert self._confirms is not None, "confirm() comes first"
        self._check()
        if not self._connection.flowing:
            await self._connection.flow()
        await self._confirms.wait(most)

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

    # Events of the connection.

    def on_method(self, received: ReceivedMethod) -> None:
        method, arguments = received
        match method.id:
            case methods.BASIC_ACK | methods.BASIC_NACK:
                if self._confirms is not None:
                    refused = method.id == methods.BASIC_NACK
                    self._confirms.settle(
                        arguments.delivery_tag, multiple=arguments.multiple, refused=refused
                    )
            case methods.BASIC_GET_EMPTY:
                self._replies.resolve_get(None)
            case methods.BASIC_CANCEL:
                self.on_cancelled(arguments.consumer_tag)
            case methods.CHANNEL_CLOSE:
                self._connection.send(encode_method_frame(self.number, methods.CHANNEL_CLOSE_OK))
                self._connection.closed(self.number)
                code, text = arguments.reply_code, arguments.reply_text
                self.fail(error_from_close(code, text, self._connection.address))
            case methods.CHANNEL_CLOSE_OK:
                if self._replies.resolve(received):  # else it answers an earlier channel
                    self._connection.closed(self.number)
                    self.on_closed = _ignore
                    self.fail(ChannelError("the channel is closed"))
            case methods.CHANNEL_FLOW:
                answer = encode_method_frame(
                    self.number, methods.CHANNEL_FLOW_OK, active=arguments.active
                )
                self._connection.send(answer)
            case _:
                self._replies.resolve(received)

    def on_content(self, content: AmqpContent) -> None:
        """A message of `get`, or a returned one."""
        if content.method != methods.BASIC_RETURN:
            if self._replies.resolve_get(content):
                self.reject(content.tag, requeue=True)
        elif self._confirms is None or not self._confirms.returned(content):
            self.on_returned(content)

    def fail(self, error: PenstockError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._replies.fail(error)
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


class AckChannel(Protocol):
    def ack(self, tag: int, *, multiple: bool = False) -> None: ...


def acknowledge_all(
    channel: AckChannel, unacknowledged: dict[int, None], settled: set[int]
) -> None:
    """One acknowledgement covers the oldest deliveries, up to the first that is not settled; later
    ones are acknowledged one by one. `unacknowledged` has the tags of all deliveries, in order."""
    upto = 0
    for tag in unacknowledged:
        if tag not in settled:
            break
        upto = tag
    if upto:
        channel.ack(upto, multiple=True)
    for tag in sorted(settled):
        if tag > upto:
            channel.ack(tag)
        unacknowledged.pop(tag, None)


def _ignore(_: object) -> None:
    pass


class _UnconfirmedPublish:
    __slots__ = ("header", "on_outcome", "returned", "route")

    def __init__(self, route: bytes, header: bytes, on_outcome: PublishOutcome | None) -> None:
        self.route = route
        self.header = header
        self.on_outcome = on_outcome
        self.returned = False


class PublisherConfirms:
    """The unconfirmed messages of a channel, by publish sequence number.

    A broker returns an unroutable message before it confirms it. The return has no sequence number:
    the message is found by its route, and by its header if several have the same route.
    """

    __slots__ = ("_failure", "_last", "_open", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, _UnconfirmedPublish | None] = {}  # by number, in order
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: PenstockError | None = None  # of a message without `on_outcome`

    @property
    def open(self) -> int:
        return len(self._open)

    def add(self, route: bytes, header: bytes, *, mandatory: bool) -> None:
        """Published, without a callback: `wait` raises its error."""
        self._last += 1
        self._open[self._last] = _UnconfirmedPublish(route, header, None) if mandatory else None

    def add_awaited(self, route: bytes, header: bytes, on_outcome: PublishOutcome) -> None:
        """Published; `on_outcome` is called when it is confirmed, refused or returned, and when
        the channel ends."""
        self._last += 1
        self._open[self._last] = _UnconfirmedPublish(route, header, on_outcome)

    async def wait(self, most: int) -> None:
        """Returns when at most so many are open; raises the error of a message from `add`."""
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

    def returned(self, content: AmqpContent) -> bool:
        """Whether it is one of the unconfirmed messages."""
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


class PendingReplies:
    """The awaited answers of a channel, in the order of the calls.

    The answer to a cancelled call still arrives, and must not be given to the next one.
    """

    __slots__ = ("_calls", "_gets")

    def __init__(self) -> None:
        self._calls: dict[int, deque[asyncio.Future[MethodArguments]]] = {}
        self._gets: deque[tuple[asyncio.Future[AmqpContent | None], bool]] = deque()

    def expect(self, reply: int) -> asyncio.Future[MethodArguments]:
        future: asyncio.Future[MethodArguments] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(reply, deque()).append(future)
        return future

    def expect_get(self, *, no_ack: bool) -> asyncio.Future[AmqpContent | None]:
        future: asyncio.Future[AmqpContent | None] = asyncio.get_running_loop().create_future()
        self._gets.append((future, no_ack))
        return future

    def resolve(self, answer: ReceivedMethod) -> bool:
        """Whether it was awaited."""
        waiting = self._calls.get(answer.id)
        if not waiting:
            return False
        future = waiting.popleft()
        if not future.done():
            future.set_result(answer.arguments)
        return True

    def resolve_get(self, content: AmqpContent | None) -> bool:
        """Whether the message has to be requeued, because its `get` was cancelled."""
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
