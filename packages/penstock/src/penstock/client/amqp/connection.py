"""A connection that mends itself.

aio-pika's robust connection does the mending; a link adds what the patterns need of it: channels
that can be asked for at any time and come when there is a connection, whether the broker has asked
senders to wait, and errors that say what to do. Channels are plain: each pattern restores its own,
because only it knows what to resume (an offset, an unanswered request) and what to leave behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

import aio_pika
from aiormq import Channel
from aiormq import exceptions as aiormq
from yarl import URL

from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.client.retry import RECONNECT_SECONDS, connect_with_retry
from penstock.core.addresses import DEFAULT_PORTS
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    NoRoute,
    NotAllowed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    ProtocolError,
    QueueFull,
    ResourceLocked,
    Unsupported,
)
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 10.0
#: A peer that vanished without a word is missed after three of them.
HEARTBEAT_SECONDS: Final = 10

#: Declares what a channel is for; done again on every new one.
SetupChannel = Callable[[Channel], Awaitable[None]]


class AioPikaConnection:
    """One connection to one broker, opened when first needed."""

    def __init__(self, url: str, purpose: str, tls: ssl.SSLContext | None, patience: float) -> None:
        self._url = URL(url)
        if "heartbeat" not in self._url.query:
            self._url = self._url.update_query(heartbeat=HEARTBEAT_SECONDS)
        self._purpose = purpose
        self._tls = tls
        self._patience = patience
        self._opening = asyncio.Lock()
        self._connection: aio_pika.RobustConnection | None = None
        self._closed = False
        self._senders_wait = False

    @property
    def connection(self) -> aio_pika.RobustConnection:
        if self._connection is None:
            raise RuntimeError("the fabric is not open: use `async with connect(url) as fabric`")
        return self._connection

    @property
    def blocked(self) -> bool:
        if self._connection is None or self._connection.transport is None:
            return False
        # There is no asking but only waiting: begin to wait and see whether it ends at once.
        waiting = self._connection.transport.connection.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    async def open(self) -> None:
        async with self._opening:
            if self._closed:
                raise FabricClosed("the fabric is closed")
            if self._connection is not None:
                return
            self._connection = await connect_with_retry(self._connect, self._patience)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def channel(
        self, prepare: SetupChannel | None = None, *, confirms: bool = False
    ) -> Channel:
        """A channel, fresh and prepared, as soon as there is a connection to have one on."""
        pause = 0.01
        while True:
            await self.open()
            await self.connection.connected.wait()
            try:
                return await self._open_channel(prepare, confirms)
            except BaseException as error:
                if not is_transient(error):
                    raise
            # The end of a connection is seen by its channels first: let it sink in.
            await asyncio.sleep(pause)
            pause = min(2 * pause, RECONNECT_SECONDS)

    async def flowing(self) -> None:
        """Returns when senders may go on: at once, unless the broker has asked them to wait."""
        while self.blocked:
            transport = self.connection.transport
            if transport is None:
                return
            self._note_waiting(True)
            released = asyncio.ensure_future(transport.connection.ready())
            lost = transport.connection.closing
            try:
                await asyncio.wait((released, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                released.cancel()
                lost.cancel()
            if transport.connection.is_closed:
                break
        self._note_waiting(False)

    def __str__(self) -> str:
        return f"{self._url.host}:{self._port}"

    @property
    def _port(self) -> int:
        return self._url.explicit_port or DEFAULT_PORTS[self._url.scheme]

    async def _open_channel(self, prepare: SetupChannel | None, confirms: bool) -> Channel:
        transport = self.connection.transport
        if transport is None:
            raise RetryOnNewChannel
        channel = cast(
            Channel,
            await transport.connection.channel(
                publisher_confirms=confirms, on_return_raises=confirms
            ),
        )
        try:
            if prepare is not None:
                await prepare(channel)
        except BaseException:
            await close_quietly(channel)
            raise
        return channel

    async def _connect(self) -> aio_pika.RobustConnection:
        connection = aio_pika.RobustConnection(
            self._url,
            ssl_context=self._tls,
            reconnect_interval=RECONNECT_SECONDS,
            client_properties={
                "product": "Penstock client",
                "connection_name": self._url.query.get("name", f"penstock {self._purpose}"),
            },
        )
        try:
            # The outer limit is for what the inner one does not see: a peer that talks nonsense.
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                await connection.connect(timeout=CONNECT_SECONDS)
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception):
                raise self._unreachable(error) from error
            raise
        connection.close_callbacks.add(self._on_lost)
        connection.reconnect_callbacks.add(self._on_restored)
        return connection

    def _unreachable(self, error: Exception) -> PenstockError:
        host, port = self._url.host or "", self._port
        if isinstance(error, aiormq.ProbableAuthenticationError | aiormq.AuthenticationError):
            return AuthenticationFailed(
                f"{self} does not let {self._url.user or 'guest'!r} in: "
                "wrong name or password, or a user that may not connect from here"
            )
        if isinstance(error, aiormq.InvalidFrameError | aiormq.ConnectionClosed):
            return NotFound(f"{self} refused the virtual host {self._url.path!r}: {error}")
        if isinstance(error, aiormq.IncompatibleProtocolError):
            return BrokerUnreachable(host, port, "what listens there does not speak AMQP 0-9-1")
        if isinstance(error, TimeoutError):
            return BrokerUnreachable(host, port, f"no answer within {CONNECT_SECONDS:g} s")
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return BrokerUnreachable(host, port, "connection refused")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return BrokerUnreachable(host, port, reason or type(error).__name__)

    def _note_waiting(self, waiting: bool) -> None:
        if waiting is not self._senders_wait:
            self._senders_wait = waiting
            what = "the broker asks senders to wait" if waiting else "senders may go on"
            log.warning(what, broker=str(self))

    def _on_lost(self, _: object, error: BaseException | None) -> None:
        if self._connection is not None and not self._connection.close_called:
            log.warning("connection lost, trying again", broker=str(self), reason=str(error))

    def _on_restored(self, _: object) -> None:
        log.info("connected again", broker=str(self))


async def close_quietly(channel: Channel) -> None:
    """Close a channel nobody needs, whatever state it is in."""
    with contextlib.suppress(Exception):
        await channel.close(timeout=CLOSE_SECONDS)


async def wait_closed(channel: Channel) -> BaseException | None:
    """Returns when the channel has ended, with the reason."""
    closing = channel.closing
    await asyncio.wait((closing,))
    return None if closing.cancelled() else closing.exception()


# The errors of AMQP 0-9-1, read two ways.
#
# `is_transient` tells the faults of a connection, which a new connection cures, from those of the
# request, which it does not. `to_penstock_error` gives the latter their names in
# `penstock.core.errors`.


class RetryOnNewChannel(Exception):
    """Try again on a new channel: the next attempt will go another way."""


#: Answers to what we asked: asking again would bring the same.
_PERMANENT: Final = (
    aiormq.ConnectionNotAllowed,
    aiormq.ConnectionNotImplemented,
    aiormq.ConnectionCommandInvalid,
    aiormq.ConnectionSyntaxError,
    aiormq.ConnectionFrameError,
    aiormq.DeliveryError,
)

_ERRORS: Final[dict[type[BaseException], type[PenstockError]]] = {
    aiormq.ChannelNotFoundEntity: NotFound,
    aiormq.ChannelAccessRefused: AccessRefused,
    aiormq.ChannelLockedResource: ResourceLocked,
    aiormq.ChannelPreconditionFailed: PreconditionFailed,
    aiormq.ConnectionNotAllowed: NotAllowed,
    aiormq.ConnectionNotImplemented: Unsupported,
    aiormq.PublishError: NoRoute,
    aiormq.DeliveryError: QueueFull,
}


def is_transient(error: BaseException | None) -> bool:
    """Whether the connection was at fault, so that another may do."""
    if isinstance(error, asyncio.CancelledError):
        # aiormq cancels what waits on a connection that ends; our own end is told by the task.
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    if isinstance(error, aiormq.ChannelClosed):
        # The broker gives a code for what was wrong; without one, the channel just went.
        return error.args[:1] == (None,)
    if isinstance(error, _PERMANENT):
        return False
    return error is None or isinstance(
        error, RetryOnNewChannel | OSError | RuntimeError | aiormq.AMQPError | TimeoutError
    )


def to_penstock_error(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    words = " ".join(str(part) for part in error.args if part is not None)
    if isinstance(error, aiormq.PublishError):
        words = f"no queue takes what is sent to {error.args[1]!r}"
    elif isinstance(error, aiormq.DeliveryError):
        words = "the broker refused the message: its queue is full, or could not store it"
    named = _ERRORS.get(type(error), ProtocolError)(words or repr(error))
    named.__cause__ = error
    return named
