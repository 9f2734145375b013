"""A channel: calls and their answers, deliveries, publishes and their confirms.

Calls may be made one behind the other without waiting: a broker answers those of one kind in order,
though a commit, which waits for the disk, may be overtaken by others. What is published goes out at
the end of the loop's turn, all of it in one write. A call or a wait may be given up (cancelled) at
any time; what it would have brought is not lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.client.amqp091.answers import Answers
from penstock.client.amqp091.confirms import Confirms, fail
from penstock.core.errors import ChannelError, PenstockError
from penstock.core.properties import Properties, encode_header, encode_route
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.faults import closed_for
from penstock.wire.amqp091.frames import write_ack, write_method, write_publish
from penstock.wire.amqp091.messages import Content

_Answer = TypeVar("_Answer", bound=Method)
Arguments = Mapping[str, Any]


class Sender(Protocol):
    """The connection, as a channel sees it."""

    address: Address
    flowing: bool  #: whether what is sent now leaves soon

    @property
    def frame_max(self) -> int: ...

    def send(self, data: bytes) -> None: ...

    def closed(self, channel: int) -> None: ...

    async def flow(self) -> None: ...


class Channel:
    """Had from a connection. What comes is told to the callbacks, on the loop."""

    def __init__(self, number: int, connection: Sender) -> None:
        self.number = number
        self.failure: PenstockError | None = None  #: why it is closed
        #: Told of all messages that one read brought, at once.
        self.on_deliveries: Callable[[list[Content]], None] = _ignore
        self.on_closed: Callable[[PenstockError], None] = _ignore
        #: The broker has ended a consumer, as when its queue is deleted.
        self.on_cancelled: Callable[[str], None] = _ignore
        #: No queue took a message that was mandatory, and nobody waits for its confirm.
        self.on_returned: Callable[[Content], None] = _ignore
        self._connection = connection
        self._answers = Answers()
        self._confirms: Confirms | None = None

    # Calls.

    def call(self, request: Method, answer: type[_Answer]) -> asyncio.Future[_Answer]:
        """Sent at once; await it for the answer, or call again meanwhile."""
        if self.failure is not None:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            fail(refused, self.failure)
            return refused
        self._connection.send(write_method(self.number, request))
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

    async def get(self, queue: str, *, no_ack: bool = False) -> Content | None:
        """The next message of a queue, if there is one."""
        self._check()
        get = commands.Basic.Get(queue=queue, no_ack=no_ack)
        self._connection.send(write_method(self.number, get))
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
        self._confirms = self._confirms or Confirms()

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
        said: Properties,
        *,
        mandatory: bool = False,
    ) -> None:
        """Sent at the end of the turn. Whether it is safe, `room` tells if the channel confirms."""
        route, header = encode_route(exchange, key), encode_header(said, len(body))
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
        self, exchange: str, key: str, body: bytes, said: Properties, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        """Sent like `publish`; done when the broker has it safe. The channel confirms."""
        assert self._confirms is not None, "confirm() comes first"
        self._check()
        route, header = encode_route(exchange, key), encode_header(said, len(body))
        self._send(route, header, body, mandatory)
        return self._confirms.add_awaited(route, header)

    async def publish_safely(
        self, exchange: str, key: str, body: bytes, said: Properties, *, mandatory: bool = False
    ) -> None:
        """`post`, once the broker and the socket take more; returns when it is safe."""
        if not self._connection.flowing:
            await self._connection.flow()
        await self.post(exchange, key, body, said, mandatory=mandatory)

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
            self._connection.send(write_ack(self.number, tag, multiple=multiple))

    def reject(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        if self.failure is None:
            value = commands.Basic.Nack(tag, multiple, requeue)
            self._connection.send(write_method(self.number, value))

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
                self._connection.send(write_method(self.number, commands.Channel.CloseOk()))
                self._connection.closed(self.number)
                code, text = method.reply_code or 0, method.reply_text or ""
                self.fail(closed_for(code, text, self._connection.address))
            case commands.Channel.CloseOk():
                if self._answers.hear(method):  # else it is for who had this number before
                    self._connection.closed(self.number)
                    self.on_closed = _ignore
                    self.fail(ChannelError("this channel was closed"))
            case commands.Channel.Flow():
                answer = commands.Channel.FlowOk(method.active)
                self._connection.send(write_method(self.number, answer))
            case _:
                self._answers.hear(method)

    def hear_content(self, content: Content) -> None:
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
            write_publish(self.number, route, header, body, most, mandatory=mandatory)
        )

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


def _ignore(_: object) -> None:
    pass
