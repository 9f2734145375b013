"""What a program sees of the fabric: patterns, not protocols.

Three patterns and a log. *Publish/subscribe*: everyone whose pattern matches gets a copy.
*Push/pull*: each item goes to one of those who pull, and is kept until it is done. *Request/reply*:
a question by the name of a service, an answer or an error. *Streams*: what was appended can be
replayed from any point, by anyone, again. Nothing is to be declared before use.

These protocols are the promise. Each way to talk to a broker (`penstock.client.amqp`, others
beside it) keeps it in its own folder; `penstock.client.fabric` says which URL leads to which.
"""

from __future__ import annotations

import ssl
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import urlsplit

from penstock.client.errors import UnknownScheme
from penstock.client.message import Body, ReceivedMessage

if TYPE_CHECKING:
    import aio_pika

    from penstock.client.mqtt.fabric import MqttFabric


#: Subscriptions and replays are read fast; the buffer should outlast a round trip.
SUBSCRIBE_PREFETCH: Final = 500
#: Work is slow, and what one worker holds back another cannot do.
WORK_PREFETCH: Final = 10

Headers = Mapping[str, Any]

#: Where a replay begins: "first", "last", "next", an offset, a moment, or how long ago ("1h").
StreamStart = str | int | datetime | timedelta

#: Answers a request with a body; what it raises travels back as a `RemoteError`.
ServiceHandler = Callable[[ReceivedMessage], Body | Awaitable[Body]]


class MessageSender(Protocol):
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


class MessageReceiver(Protocol):
    """A place messages come from: loop over it, or `receive()` one at a time.

    The loop settles: a message is acknowledged when the loop asks for the next one. Leaving the
    loop early puts the message in hand back, except that leaving an `async with` block without an
    exception acknowledges it. A message from `receive()` is the receiver's to acknowledge.
    """

    async def open(self) -> Self:
        """Returns when what is sent from now on will arrive here."""

    async def receive(self) -> ReceivedMessage: ...

    async def close(self) -> None: ...

    def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]: ...  # noqa: PYI058 (closable)

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class RequestService(Protocol):
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

    def publisher(self, address: str, *, exchange: str = ...) -> MessageSender:
        """The same as a place to send many to."""

    def subscribe(
        self, *patterns: str, name: str | None = None, exchange: str = ..., prefetch: int = ...
    ) -> MessageReceiver:
        """Copies of what is published: `*` is one word, `#` any number.

        With a name the subscription lasts: what is published while nobody listens waits, and
        those who use the same name share the messages.
        """

    def push(self, queue: str) -> MessageSender: ...

    def pull(self, queue: str, *, prefetch: int = ...) -> MessageReceiver: ...

    async def request(
        self,
        service: str,
        body: Body = ...,
        *,
        headers: Headers | None = None,
        timeout: float | None = ...,
    ) -> ReceivedMessage: ...

    def reply(self, service: str, *, prefetch: int = ...) -> MessageReceiver:
        """Requests to answer with `await request.reply(…)`."""

    def serve(
        self, service: str, handler: ServiceHandler, *, concurrency: int = ...
    ) -> RequestService:
        """Answers requests by calling the handler, several at a time."""

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> MessageSender:
        """A stream to append to; it also keeps what is published to the subjects."""

    def replay(
        self, stream: str, start: StreamStart = "first", *, prefetch: int = ...
    ) -> MessageReceiver:
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


# Which URL leads to which protocol.
#
# One line a scheme: the module that keeps the patterns over it, imported when first asked for. A
# protocol is added by adding its folder and its lines here.

FABRICS_BY_SCHEME: Final = {
    "amqp": "penstock.client.amqp.fabric:AmqpFabric",
    "amqps": "penstock.client.amqp.fabric:AmqpFabric",
    "amqp+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "amqps+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "mqtt": "penstock.client.mqtt.fabric:MqttFabric",
    "mqtts": "penstock.client.mqtt.fabric:MqttFabric",
    "ws": "penstock.client.mqtt.fabric:MqttFabric",
    "wss": "penstock.client.mqtt.fabric:MqttFabric",
}


class _Opener(Protocol):
    def __call__(self, url: str, *, tls: ssl.SSLContext | None, patience: float) -> Fabric: ...


def connect(url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0) -> Fabric:
    """The fabric behind a URL, to be opened by `async with` (or `await … .open()`).

    A broker that does not answer is an error at once, or after `patience` seconds of trying; one
    that goes away later is waited for.
    """
    scheme = urlsplit(url).scheme
    where = FABRICS_BY_SCHEME.get(scheme)
    if scheme in ("padres", "padress"):
        raise UnknownScheme(
            f"{url!r}: publications by content are penstock.client.padres.PadresClient's"
        )
    if where is None:
        known = ", ".join(f"{scheme}://" for scheme in FABRICS_BY_SCHEME)
        raise UnknownScheme(f"{url!r}: the client speaks {known}")
    module, _, name = where.partition(":")
    opener: _Opener = getattr(import_module(module), name)
    return opener(url, tls=tls, patience=patience)
