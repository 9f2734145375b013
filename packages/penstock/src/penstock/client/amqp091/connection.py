"""One connection on an event loop: the frames of AMQP 0-9-1 on a socket, with its heartbeats.

What is to be written in a turn of the loop goes out in one write. What one read brings to a
channel is handed to it as one list. How a connection ended is told to all channels, once.
"""

from __future__ import annotations

import asyncio
import errno
import math
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.client.retry import connect_with_retry
from penstock.client.url import create_tls_context, tls_error
from penstock.core.errors import PenstockError, ResourceExhausted
from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.channel_zero import ChannelZero, ClientConnectionState
from penstock.wire.amqp091.content import AmqpContent, ContentReader
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock.wire.amqp091.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER
from penstock.wire.amqp091.methods import BASIC_DELIVER, CHANNEL_OPEN, ReceivedMethod

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
#: What may wait to be sent before senders should (`flow`).
WRITE_BUFFER_BYTES: Final = 1 * MiB
#: Half heartbeats without a sign of life, after which there is none.
_MAX_MISSED_HALF_HEARTBEATS: Final = 4


class AmqpClientConnection(asyncio.Protocol):
    """Made by `connect`. Keeps `penstock.client.amqp091.channel.ChannelConnection`."""

    def __init__(self, address: AmqpAddress, purpose: str) -> None:
        self.address = address
        self.flowing = True  #: neither the broker nor the socket asks senders to wait
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[PenstockError] = self._loop.create_future()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._zero = ChannelZero(address, purpose)
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
    def blocked(self) -> bool:
        """Whether the broker has asked senders to wait."""
        return self._zero.blocked

    async def channel(self) -> AmqpClientChannel:
        if self.lost.done():
            raise self.lost.result()
        free = (each for each in range(1, self._zero.channel_max + 1) if each not in self._channels)
        number = next(free, None)
        if number is None:
            raise ResourceExhausted(f"{self.address} allows no more than {len(self._channels)}")
        channel = self._channels[number] = AmqpClientChannel(number, self)
        try:
            await channel.call(CHANNEL_OPEN)
        except asyncio.CancelledError:
            channel.abandon()
            raise
        return channel

    async def flow(self) -> None:
        """Returns when `flowing`; raises when the connection is lost before."""
        while not self.flowing and not self.lost.done():
            await self._flow.wait()
        if self.lost.done():
            raise _lost(self.lost.result())

    async def close(self) -> None:
        """Leave with a word; and without one, if the broker does not answer."""
        if self._transport is None or self.lost.done():
            return
        self.send(self._zero.close())
        done, _ = await asyncio.wait([self.lost], timeout=CLOSE_SECONDS)
        if not done:
            self.abandon()

    def abandon(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._lose(AmqpConnectionLost(f"left {self.address}"))

    # What channels say.

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

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport.write(PROTOCOL_HEADER)

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        brought: dict[int, list[AmqpContent]] = {}
        channels = self._channels
        try:
            for each in self._messages.feed(data):
                if isinstance(each, AmqpContent):
                    number = each.channel
                    if each.method == BASIC_DELIVER:
                        brought.setdefault(number, []).append(each)
                    elif number in channels:
                        channels[number].hear_content(each)
                    continue
                number, method = each
                if not number:
                    self._hear(method)
                elif number in channels:
                    if deliveries := brought.pop(number, None):
                        channels[number].on_deliveries(deliveries)
                    channels[number].hear(method)
        except PenstockError as error:
            self._lose(error)
            self.abandon()
            return
        for number, contents in brought.items():
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
            self.opened.exception()  # seen, even if nobody waits any more
        for channel in list(self._channels.values()):
            channel.fail(_lost(error))
        self._channels.clear()

    # The connection's own channel.

    def _hear(self, method: ReceivedMethod) -> None:
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
                self._loop.call_soon(self._transport.close)  # behind the answer

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
    """To a channel it is all the same why."""
    return error if isinstance(error, AmqpConnectionLost) else AmqpConnectionLost(str(error))


async def connect(address: AmqpAddress, purpose: str) -> AmqpClientConnection:
    """A connection that the broker has let in; errors say what to do about them."""
    loop = asyncio.get_running_loop()
    tls = create_tls_context(address.authorities) if address.tls else None
    connection = AmqpClientConnection(address, purpose)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(lambda: connection, address.host, address.port, ssl=tls)
            await connection.opened
    except TimeoutError:
        connection.abandon()
        raise BrokerUnreachable(
            address.host, address.port, f"no answer within {CONNECT_SECONDS:g} s"
        ) from None
    except ssl.SSLError as error:
        connection.abandon()
        raise tls_error(address, error) from None
    except PenstockError:  # some are of the system's kind as well, and say more
        connection.abandon()
        raise
    except OSError as error:
        connection.abandon()
        refused = error.errno == errno.ECONNREFUSED
        reason = "connection refused" if refused else error.strerror or str(error)
        raise BrokerUnreachable(address.host, address.port, reason) from error
    except BaseException:
        connection.abandon()
        raise
    return connection


# A connection that mends itself: whoever uses it says what to do on each new one.

log = get_logger(__name__)

#: What passes: the broker is away, or went while it was spoken to.
_TRANSIENT_ERRORS: Final = (BrokerUnreachable, AmqpConnectionLost)

#: Declares and consumes; done again on every new connection. It is lost by then, or for good, if
#: this raises.
SetupConnection = Callable[[AmqpClientConnection], Awaitable[None]]


class AmqpRecoveringConnection:
    """Opened once, closed once; between the two there is a connection most of the time."""

    def __init__(
        self, address: AmqpAddress, purpose: str, prepare: SetupConnection, *, patience: float = 0.0
    ) -> None:
        self._address = address
        self._purpose = purpose
        self._prepare = prepare
        self._patience = patience
        self._connection: AmqpClientConnection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # there is a connection, or there will be no other
        self._closed = False
        self.failed: asyncio.Future[PenstockError] | None = None  #: why there will be no other

    async def open(self) -> None:
        """Returns when it is prepared; a broker that is away is waited for, for so long."""
        self.failed = asyncio.get_running_loop().create_future()
        self._connection = await connect_with_retry(
            self._connect, self._patience, _TRANSIENT_ERRORS
        )
        self._changed.set()
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        self._closed = True
        self._changed.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.lost.done()

    async def connection(self) -> AmqpClientConnection:
        """As soon as there is one."""
        while True:
            assert self.failed is not None, "not opened"
            if self.failed.done():
                raise self.failed.result()
            if self._closed:
                raise FabricClosed(f"the link to {self._address} is closed")
            if self._connection is not None and not self._connection.lost.done():
                return self._connection
            self._changed.clear()
            await self._changed.wait()

    async def _connect(self) -> AmqpClientConnection:
        connection = await connect(self._address, self._purpose)
        try:
            await self._prepare(connection)
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _keep(self) -> None:
        assert self.failed is not None
        try:
            while True:
                await self._mend()
        except PenstockError as error:
            log.error("the broker will not have us back", reason=str(error))
            self.failed.set_result(error)
        except Exception as error:
            log.exception("a connection could not be prepared")
            self.failed.set_result(PenstockError(f"{type(error).__name__}: {error}"))
        finally:
            self._changed.set()

    async def _mend(self) -> None:
        """Wait until the connection is lost, and then have another."""
        assert self._connection is not None
        reason = await asyncio.shield(self._connection.lost)
        log.warning("connection lost, trying again", broker=str(self._address), reason=str(reason))
        self._connection = await connect_with_retry(self._connect, math.inf, _TRANSIENT_ERRORS)
        self._changed.set()
        log.info("connected again", broker=str(self._address))
