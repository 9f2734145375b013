"""One connection on an event loop: the frames of AMQP 0-9-1 on a socket, with its heartbeats.

What is to be written in a turn of the loop goes out in one write. What one read brings to a
channel is handed to it as one list. How a connection ended is told to all channels, once.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import Final, cast

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.client.amqp091.channel import Channel
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import not_trusted, trust
from penstock.core.errors import PenstockError, ResourceExhausted
from penstock.core.units import MiB
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.channel_zero import ChannelZero, Stage
from penstock.wire.amqp091.faults import Lost
from penstock.wire.amqp091.frames import GREETING, HEARTBEAT_FRAME
from penstock.wire.amqp091.messages import Content, Messages

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
#: What may wait to be sent before senders should (`flow`).
WRITE_BYTES: Final = 1 * MiB
#: Half heartbeats without a sign of life, after which there is none.
_SILENT: Final = 4


class Connection(asyncio.Protocol):
    """Made by `connect`. Keeps `penstock.client.amqp091.channel.Sender`."""

    def __init__(self, address: Address, purpose: str) -> None:
        self.address = address
        self.flowing = True  #: neither the broker nor the socket asks senders to wait
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[PenstockError] = self._loop.create_future()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._zero = ChannelZero(address, purpose)
        self._messages = Messages()
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
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

    async def channel(self) -> Channel:
        if self.lost.done():
            raise self.lost.result()
        free = (each for each in range(1, self._zero.channel_max + 1) if each not in self._channels)
        number = next(free, None)
        if number is None:
            raise ResourceExhausted(f"{self.address} allows no more than {len(self._channels)}")
        channel = self._channels[number] = Channel(number, self)
        try:
            await channel.call(commands.Channel.Open(), commands.Channel.OpenOk)
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
        self.send(self._zero.leave())
        done, _ = await asyncio.wait([self.lost], timeout=CLOSE_SECONDS)
        if not done:
            self.abandon()

    def abandon(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._lose(Lost(f"left {self.address}"))

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
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        brought: dict[int, list[Content]] = {}
        channels = self._channels
        try:
            for each in self._messages.feed(data):
                if isinstance(each, Content):
                    number = each.channel
                    if each.method is None:
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
        self._lose(self._zero.broken(str(error) if error else ""))

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

    def _hear(self, method: Method) -> None:
        zero = self._zero
        if answer := zero.hear(method):
            self.send(answer)
        if zero.stage is Stage.OPEN:
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
        if self._silent > _SILENT:
            self._lose(Lost(f"no sign of life from {self.address} for {_SILENT * every:g} s"))
            self.abandon()
            return
        self._silent += 1
        self.send(HEARTBEAT_FRAME)
        self._beating = self._loop.call_later(every, self._beat)


def _lost(error: PenstockError) -> Lost:
    """To a channel it is all the same why."""
    return error if isinstance(error, Lost) else Lost(str(error))


async def connect(address: Address, purpose: str) -> Connection:
    """A connection that the broker has let in; errors say what to do about them."""
    loop = asyncio.get_running_loop()
    tls = trust(address.authorities) if address.tls else None
    connection = Connection(address, purpose)
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
        raise not_trusted(address, error) from None
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
