"""What a program sees of the fabric: patterns, not protocols.

Three patterns and a log. *Publish/subscribe*: everyone whose pattern matches gets a copy.
*Push/pull*: each item goes to one of those who pull, and is kept until it is done. *Request/reply*:
a question by the name of a service, an answer or an error. *Streams*: what was appended can be
replayed from any point, by anyone, again. Nothing is to be declared before use.

These protocols are the promise. Each way to talk to a broker (`penstock.client.amqp`, others
beside it) keeps it in its own folder; `penstock.client.schemes` says which URL leads to which.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from penstock.client.body import Body
from penstock.client.message import Message

if TYPE_CHECKING:
    import aio_pika

    from penstock.client.mqtt.fabric import MqttFabric

#: Subscriptions and replays are read fast; the buffer should outlast a round trip.
FAST_PREFETCH: Final = 500
#: Work is slow, and what one worker holds back another cannot do.
WORK_PREFETCH: Final = 10

Headers = Mapping[str, Any]

#: Where a replay begins: "first", "last", "next", an offset, a moment, or how long ago ("1h").
Start = str | int | datetime | timedelta

#: Answers a request with a body; what it raises travels back as a `RemoteError`.
Handler = Callable[[Message], Body | Awaitable[Body]]


class Outflow(Protocol):
    """A place to send to. Leaving `async with` waits until all that was posted is safe."""

    async def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        """Returns when the broker has it safe; raises when the broker will not have it.

        A send is repeated, with the same message id, for as long as connections break before the
        broker's word arrives: at least once, never silently not at all.
        """

    async def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> Awaitable[None]:
        """Returns as soon as there is room in the window; await the result to know it is safe."""

    async def flush(self) -> None:
        """Returns when all that was posted is safe; raises the first failure there was."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Inflow(Protocol):
    """A place messages come from: loop over it, or `receive()` one at a time.

    The loop settles: a message is acknowledged when the loop asks for the next one. Leaving the
    loop early puts the message in hand back, except that leaving an `async with` block without an
    exception acknowledges it. A message from `receive()` is the receiver's to acknowledge.
    """

    async def open(self) -> Self:
        """Returns when what is sent from now on will arrive here."""

    async def receive(self) -> Message: ...

    async def close(self) -> None: ...

    def __aiter__(self) -> AsyncGenerator[Message, None]: ...  # noqa: PYI058 (closable)

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Service(Protocol):
    """A handler that answers requests: in the background of `async with`, or awaited for good."""

    def __await__(self) -> Generator[Any, None, None]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Fabric(Protocol):
    """A connection to a broker that mends itself, and the patterns over it."""

    @property
    def amqp(self) -> aio_pika.RobustConnection:
        """The whole AMQP 0-9-1 model: aio-pika's connection, where that is what is spoken."""

    @property
    def mqtt(self) -> MqttFabric:
        """The same fabric with what only MQTT has, where that is what is spoken."""

    @property
    def blocked(self) -> bool:
        """Whether the broker has asked senders to wait, which they then do."""

    async def publish(
        self,
        address: str,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
        exchange: str = ...,
    ) -> None:
        """Give a copy to everyone subscribed to the address now. Words are parted by dots."""

    def publisher(self, address: str, *, exchange: str = ...) -> Outflow:
        """The same as a place to send many to."""

    def subscribe(
        self, *patterns: str, name: str | None = None, exchange: str = ..., prefetch: int = ...
    ) -> Inflow:
        """Copies of what is published: `*` is one word, `#` any number.

        With a name the subscription lasts: what is published while nobody listens waits, and
        those who use the same name share the messages.
        """

    def push(self, queue: str) -> Outflow: ...

    def pull(self, queue: str, *, prefetch: int = ...) -> Inflow: ...

    async def request(
        self,
        service: str,
        body: Body = ...,
        *,
        headers: Headers | None = None,
        timeout: float | None = ...,
    ) -> Message: ...

    def reply(self, service: str, *, prefetch: int = ...) -> Inflow:
        """Requests to answer with `await request.reply(…)`."""

    def serve(self, service: str, handler: Handler, *, concurrency: int = ...) -> Service:
        """Answers requests by calling the handler, several at a time."""

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> Outflow:
        """A stream to append to; it also keeps what is published to the subjects."""

    def replay(self, stream: str, start: Start = "first", *, prefetch: int = ...) -> Inflow:
        """The messages of a stream, each once, in order, and then those still to come."""

    async def open(self) -> Self: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
