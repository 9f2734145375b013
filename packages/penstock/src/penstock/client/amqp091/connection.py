"""An AMQP 0-9-1 connection on an event loop, and one that reconnects.

All frames of one iteration of the loop are one write. All deliveries of one read to a channel are
one call of its `on_deliveries`. `AmqpRecoveringConnection` repeats the setup of its user on each
connection; channels of a lost connection raise `AmqpConnectionLost`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, cast

from penstock.client.amqp091.channel import CLOSE_SECONDS, AmqpClientChannel
from penstock.client.errors import BrokerUnreachable, FabricClosed, connect_error
from penstock.client.retry import RECONNECT, connect_with_retry
from penstock.client.url import create_tls_context
from penstock.core.errors import FrameError, PenstockError, ResourceExhausted
from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.channel_zero import ChannelZero, ClientConnectionState
from penstock.wire.amqp091.content import AmqpContent, ContentReader
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock.wire.amqp091.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER
from penstock.wire.amqp091.methods import BASIC_DELIVER, CHANNEL_OPEN, ReceivedMethod

CONNECT_SECONDS: Final = 10.0
#: With more unsent bytes, the connection is not `flowing`.
WRITE_BUFFER_BYTES: Final = 1 * MiB
#: A silent broker is given up after two heartbeat intervals.
_MAX_MISSED_HALF_HEARTBEATS: Final = 4


class AmqpClientConnection(asyncio.Protocol):
    """Opened by `connect`. Implements `penstock.client.amqp091.channel.ChannelConnection`."""

    def __init__(self, address: AmqpAddress, name: str) -> None:
        self.address = address
        self.flowing = True  #: neither the broker nor a full socket buffer holds publishers up
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[PenstockError] = self._loop.create_future()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._zero = ChannelZero(address, name)
        self._messages = ContentReader()
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, AmqpClientChannel] = {}
        self._out: list[bytes] = []
        self._congested = False
        self._flow = asyncio.Event()
        self._flow.set()
        self._silent = 0
        self._beating: asyncio.TimerHandle | None = None

    @property
    def frame_max(self) -> int:
        return self._zero.frame_max

    @property
    def server_properties(self) -> dict[str, Any]:
        return self._zero.greeting

    @property
    def blocked(self) -> bool:
        """Whether the broker has blocked publishers (`connection.blocked`)."""
        return self._zero.blocked

    async def channel(self) -> AmqpClientChannel:
        if self.lost.done():
            raise self.lost.result()
        free = (each for each in range(1, self._zero.channel_max + 1) if each not in self._channels)
        number = next(free, None)
        if number is None:
            raise ResourceExhausted(f"{self.address} allows {len(self._channels)} channels")
        channel = self._channels[number] = AmqpClientChannel(number, self)
        try:
            await channel.call(CHANNEL_OPEN)
        except asyncio.CancelledError:
            channel.abandon()
            raise
        return channel

    async def flow(self) -> None:
        """Returns when `flowing`; raises if the connection is lost."""
        while not self.flowing and not self.lost.done():
            await self._flow.wait()
        if self.lost.done():
            raise _lost(self.lost.result())

    async def close(self) -> None:
        """Close the connection; abort it if the broker does not answer."""
        if self._transport is None or self.lost.done():
            return
        self.send(self._zero.close())
        done, _ = await asyncio.wait([self.lost], timeout=CLOSE_SECONDS)
        if not done:
            self.abandon()

    def abandon(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._lose(AmqpConnectionLost(f"the connection to {self.address} was closed"))

    def send(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def closed(self, channel: int) -> None:
        self._channels.pop(channel, None)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # Events of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport.write(PROTOCOL_HEADER)

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        deliveries_by_channel: dict[int, list[AmqpContent]] = {}
        channels = self._channels
        try:
            for each in self._messages.feed(data):
                if isinstance(each, AmqpContent):
                    number = each.channel
                    if each.method == BASIC_DELIVER:
                        deliveries_by_channel.setdefault(number, []).append(each)
                    elif number in channels:
                        channels[number].on_content(each)
                    continue
                number, method = each
                if not number:
                    self._on_method(method)
                elif number in channels:
                    if deliveries := deliveries_by_channel.pop(number, None):
                        channels[number].on_deliveries(deliveries)
                    channels[number].on_method(method)
        except PenstockError as error:
            # On an open connection, reconnect after a frame that cannot be decoded.
            opened = self.opened.done()
            self._lose(AmqpConnectionLost(f"{self.address}: {error}") if opened else error)
            self.abandon()
            return
        for number, contents in deliveries_by_channel.items():
            if number in channels:
                channels[number].on_deliveries(contents)

    def pause_writing(self) -> None:
        self._congested = True
        self._set_flow()

    def resume_writing(self) -> None:
        self._congested = False
        self._set_flow()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(self._zero.connection_lost_error(str(error) if error else ""))

    def _set_flow(self) -> None:
        self.flowing = not self._congested and not self._zero.blocked
        self._flow.set() if self.flowing or self.lost.done() else self._flow.clear()

    def _lose(self, error: PenstockError) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self.lost.done():
            return
        self.lost.set_result(error)
        self._set_flow()
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # retrieved, even if nothing awaits it any more
        for channel in list(self._channels.values()):
            channel.fail(_lost(error))
        self._channels.clear()

    def _on_method(self, method: ReceivedMethod) -> None:
        zero = self._zero
        if answer := zero.on_method(method):
            self.send(answer)
        if zero.stage is ClientConnectionState.OPEN:
            if not self.opened.done():
                self.opened.set_result(None)
                self._silent = 0
                self._beat()
            self._set_flow()
        elif zero.ended is not None:
            self._lose(zero.ended)
            if self._transport is not None:
                self._loop.call_soon(self._transport.close)  # after the answer is written

    def _beat(self) -> None:
        every = self._zero.heartbeat / 2
        if not every:
            return
        if self._silent > _MAX_MISSED_HALF_HEARTBEATS:
            self._lose(
                AmqpConnectionLost(
                    f"no heartbeat from {self.address} for "
                    f"{_MAX_MISSED_HALF_HEARTBEATS * every:g} s"
                )
            )
            self.abandon()
            return
        self._silent += 1
        self.send(HEARTBEAT_FRAME)
        self._beating = self._loop.call_later(every, self._beat)


def _lost(error: PenstockError) -> AmqpConnectionLost:
    """What the channels of a lost connection raise. The cause is the error of a connection that
    the broker closed because of a request: see `permanent_cause`."""
    if isinstance(error, AmqpConnectionLost):
        return error
    lost = AmqpConnectionLost(str(error))
    lost.__cause__ = error
    return lost


def permanent_cause(error: PenstockError) -> PenstockError | None:
    """The error that the same request would meet again on a new channel, if there is one.

    A broker closes a connection with 503, 530 or 540 because of what it was sent. To send that
    again on the next connection would close each of them.
    """
    if not isinstance(error, AmqpConnectionLost):
        return error
    return error.__cause__ if isinstance(error.__cause__, PenstockError) else None


async def connect(
    address: AmqpAddress, name: str, tls: ssl.SSLContext | None = None
) -> AmqpClientConnection:
    """An open connection to one of the hosts. `name` is its name at the broker, unless the address
    has one."""
    *others, last = address.candidates()
    for candidate in others:
        with suppress(BrokerUnreachable):
            return await _connect(candidate, name, tls)
    return await _connect(last, name, tls)


async def _connect(
    address: AmqpAddress, name: str, tls: ssl.SSLContext | None
) -> AmqpClientConnection:
    loop = asyncio.get_running_loop()
    if address.tls and tls is None:
        tls = create_tls_context(address.authorities)
    connection = AmqpClientConnection(address, name)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=tls if address.tls else None
            )
            await connection.opened
    except BaseException as error:
        connection.abandon()
        if isinstance(error, FrameError | AmqpConnectionLost):
            invalid = isinstance(error, FrameError)
            reason = "what listens there does not speak AMQP 0-9-1" if invalid else str(error)
            raise BrokerUnreachable(address.host, address.port, reason) from error
        if isinstance(error, Exception):
            raise connect_error(address.host, address.port, error) from error
        raise
    return connection


# Recovery.

log = get_logger(__name__)

#: The broker is unreachable, or the connection was lost during setup.
_TRANSIENT_ERRORS: Final = (BrokerUnreachable, AmqpConnectionLost)

#: Declares and consumes; repeated on every new connection. An error ends the recovery, unless the
#: connection was lost.
SetupConnection = Callable[[AmqpClientConnection], Awaitable[None]]
#: The same for one channel; `RetryOnNewChannel` asks for another.
SetupChannel = Callable[[AmqpClientChannel], Awaitable[None]]


class RetryOnNewChannel(Exception):
    """The broker closed the channel; the setup takes another way on the next one."""


class AmqpRecoveringConnection:
    """A connection that reconnects until it is closed.

    It is opened by `open`, or when the first channel is asked for. A reconnect that the broker
    refuses, as with a changed password, ends the recovery: `failed` then has the error.
    """

    def __init__(
        self,
        address: AmqpAddress,
        name: str,
        setup: SetupConnection | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        """`retry_seconds` is how long `open` waits for a broker that is unreachable."""
        self._address = address
        self._name = name
        self._setup = setup
        self._tls = tls
        self._retry_seconds = retry_seconds
        self._opening = asyncio.Lock()
        self._connection: AmqpClientConnection | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # connected, failed or closed
        self._closed = False
        self._was_blocked = False
        self.failed: asyncio.Future[PenstockError] | None = None  #: why recovery has ended

    async def open(self) -> None:
        """Returns when the connection is set up; does nothing if it was opened before."""
        async with self._opening:
            self._check()
            if self._recovery is None:
                self.failed = asyncio.get_running_loop().create_future()
                self._connection = await connect_with_retry(
                    self._connect, self._retry_seconds, _TRANSIENT_ERRORS
                )
                self._changed.set()
                self._recovery = asyncio.create_task(self._recover())

    async def close(self) -> None:
        self._closed = True
        self._changed.set()
        async with self._opening:
            if self._recovery is not None:
                self._recovery.cancel()
                await asyncio.gather(self._recovery, return_exceptions=True)
            if self._connection is not None:
                await self._connection.close()

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.lost.done()

    @property
    def blocked(self) -> bool:
        """Whether the broker has blocked publishers (`connection.blocked`)."""
        connection = self._connection
        return connection is not None and connection.blocked and not connection.lost.done()

    async def connection(self) -> AmqpClientConnection:
        """The present connection; waits for one while there is none."""
        while True:
            self._check()
            if self._recovery is None:
                await self.open()
            if self._connection is not None and not self._connection.lost.done():
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def channel(
        self, setup: SetupChannel | None = None, *, confirm: bool = False
    ) -> AmqpClientChannel:
        """A new channel, set up; waits for a connection. `confirm` puts it into confirm mode."""
        delays = RECONNECT.delays()
        while True:
            channel: AmqpClientChannel | None = None
            try:
                channel = await (await self.connection()).channel()
                if confirm:
                    await channel.confirm()
                if setup is not None:
                    await setup(channel)
                return channel
            except BaseException as error:
                if channel is not None:
                    channel.abandon()
                if isinstance(error, PenstockError):
                    if (permanent := permanent_cause(error)) is not None:
                        raise permanent from None
                elif not isinstance(error, RetryOnNewChannel):
                    raise
            await asyncio.sleep(next(delays))

    async def flow(self) -> None:
        """Returns when publishers may send: the broker does not block them and the socket's buffer
        is not full. A lost connection does not hold them up."""
        connection = self._connection
        while connection is not None and not connection.flowing and not connection.lost.done():
            self._note_blocked(connection.blocked)
            with suppress(AmqpConnectionLost):
                await connection.flow()
            connection = self._connection
        self._note_blocked(False)

    def __str__(self) -> str:
        return str(self._address)

    def _check(self) -> None:
        if self.failed is not None and self.failed.done():
            raise self.failed.result()
        if self._closed:
            raise FabricClosed(f"the connection to {self} is closed")

    def _note_blocked(self, blocked: bool) -> None:
        if blocked is not self._was_blocked:
            self._was_blocked = blocked
            log.warning(
                "connection blocked" if blocked else "connection unblocked", broker=str(self)
            )

    async def _connect(self) -> AmqpClientConnection:
        connection = await connect(self._address, self._name, self._tls)
        try:
            if self._setup is not None:
                await self._setup(connection)
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _recover(self) -> None:
        assert self.failed is not None
        try:
            while True:
                await self._reconnect_once_lost()
        except PenstockError as error:
            log.error("reconnect refused", broker=str(self), reason=str(error))
            self.failed.set_result(error)
        except Exception as error:
            log.exception("connection setup failed", broker=str(self))
            self.failed.set_result(PenstockError(f"{type(error).__name__}: {error}"))
        finally:
            self._changed.set()

    async def _reconnect_once_lost(self) -> None:
        assert self._connection is not None
        reason = await asyncio.shield(self._connection.lost)
        log.warning("connection lost", broker=str(self), reason=str(reason))
        self._connection = await connect_with_retry(self._connect, transient=_TRANSIENT_ERRORS)
        self._changed.set()
        log.info("connection recovered", broker=str(self))
