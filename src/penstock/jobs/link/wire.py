"""One connection: the frames of AMQP 0-9-1 on a socket, with its heartbeats.

What is to be written in a turn of the loop goes out in one write. What one read brings to a
channel is handed to it as one list. How a connection ended is told to all channels, once.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Final, cast

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AuthenticationFailed, NotAllowed, NotFound, PenstockError
from penstock.core.units import KiB
from penstock.jobs.link.address import Address
from penstock.jobs.link.channel import Channel
from penstock.jobs.link.faults import Lost, closed_for
from penstock.jobs.link.frames import GREETING, HEARTBEAT, Content, Frames, write_method

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
_FRAME_MAX: Final = 128 * KiB
_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Wire(asyncio.Protocol):
    """Made by `connect`. Keeps `penstock.jobs.link.channel.Sender`."""

    def __init__(self, address: Address, purpose: str) -> None:
        self.address = address
        self.frame_max = _FRAME_MAX
        self.blocked = False  #: the broker has asked senders to wait
        self.lost: asyncio.Future[PenstockError] = asyncio.get_running_loop().create_future()
        self._purpose = purpose
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._channels: dict[int, Channel] = {}
        self._out: list[bytes] = []
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._heard = True
        self._beats: list[asyncio.TimerHandle] = []

    async def channel(self) -> Channel:
        if self.lost.done():
            raise self.lost.result()
        number = next(each for each in range(1, 65_535) if each not in self._channels)
        channel = self._channels[number] = Channel(number, self)
        await channel.call(commands.Channel.Open(), commands.Channel.OpenOk)
        return channel

    async def close(self) -> None:
        """Leave with a word; and without one, if the broker does not answer."""
        if self._transport is None or self.lost.done():
            return
        self.send(write_method(0, commands.Connection.Close(200, "", 0, 0)))
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
        self._transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        brought: dict[int, list[Content]] = {}
        try:
            for each in self._frames.feed(data):
                if isinstance(each, Content):
                    channel = each.channel
                    if each.method is None:
                        brought.setdefault(channel, []).append(each)
                    elif channel in self._channels:
                        self._channels[channel].hear_content(each)
                elif each[0] == 0:
                    self._hear(each[1])
                elif each[0] in self._channels:
                    if deliveries := brought.pop(each[0], None):
                        self._channels[each[0]].on_deliveries(deliveries)
                    self._channels[each[0]].hear(each[1])
        except PenstockError as error:
            self._lose(error)
            self.abandon()
            return
        for number, contents in brought.items():
            if number in self._channels:
                self._channels[number].on_deliveries(contents)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(
            Lost(f"{self.address} has closed the connection" + (f": {error}" if error else ""))
        )

    def _lose(self, error: PenstockError) -> None:
        for timer in self._beats:
            timer.cancel()
        if self.lost.done():
            return
        self.lost.set_result(error)
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # seen, even if nobody waits any more
        for channel in list(self._channels.values()):
            channel.fail(error if isinstance(error, Lost) else Lost(str(error)))
        self._channels.clear()

    # The connection's own channel.

    def _hear(self, method: Method) -> None:
        match method:
            case commands.Connection.Start():
                self._log_in()
            case commands.Connection.Tune():
                self._tune(method)
            case commands.Connection.OpenOk():
                if not self._opened.done():
                    self._opened.set_result(None)
            case commands.Connection.Blocked() | commands.Connection.Unblocked():
                self.blocked = isinstance(method, commands.Connection.Blocked)
            case commands.Connection.Close():
                self.send(write_method(0, commands.Connection.CloseOk()))
                self._lose(self._refusal(method.reply_code or 0, method.reply_text or ""))
                if self._transport is not None:
                    self._loop.call_soon(self._transport.close)
            case commands.Connection.CloseOk():
                self._lose(Lost(f"left {self.address}"))
                if self._transport is not None:
                    self._transport.close()

    def _refusal(self, code: int, text: str) -> PenstockError:
        if self._opened.done():
            return closed_for(code, text)
        if code == 403:
            return AuthenticationFailed(
                f"{self.address} does not let {self.address.user!r} in: "
                "wrong name or password, or a user that may not connect from here"
            )
        error = closed_for(code, text)
        if isinstance(error, NotAllowed | NotFound):
            return NotFound(
                f"{self.address} refused the virtual host {self.address.vhost!r}: {text}"
            )
        return error

    def _log_in(self) -> None:
        properties: dict[str, Any] = {
            "product": "Penstock jobs",
            "connection_name": self._purpose,
            "capabilities": dict(_CAPABILITIES),
        }
        answer = f"\0{self.address.user}\0{self.address.password}"
        self.send(
            write_method(0, commands.Connection.StartOk(properties, "PLAIN", answer, "en_US"))
        )

    def _tune(self, tune: commands.Connection.Tune) -> None:
        self.frame_max = min(tune.frame_max or _FRAME_MAX, _FRAME_MAX)
        wanted = self.address.heartbeat
        offered = tune.heartbeat or 0
        heartbeat = min(wanted, offered) if wanted and offered else wanted
        self.send(
            write_method(
                0, commands.Connection.TuneOk(tune.channel_max or 0, self.frame_max, heartbeat)
            )
            + write_method(0, commands.Connection.Open(self.address.vhost))
        )
        if heartbeat:
            self._beats = [
                self._loop.call_later(heartbeat / 2, self._beat, heartbeat / 2),
                self._loop.call_later(2 * heartbeat, self._listen, 2 * heartbeat),
            ]

    def _beat(self, every: float) -> None:
        self.send(HEARTBEAT)
        self._beats[0] = self._loop.call_later(every, self._beat, every)

    def _listen(self, every: float) -> None:
        if not self._heard:
            self._lose(Lost(f"no sign of life from {self.address} for {every:g} s"))
            self.abandon()
            return
        self._heard = False
        self._beats[1] = self._loop.call_later(every, self._listen, every)


async def connect(address: Address, purpose: str) -> Wire:
    """A connection that the broker has let in; errors say what to do about them."""
    loop = asyncio.get_running_loop()
    wire = Wire(address, purpose)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(
                lambda: wire, address.host, address.port, ssl=address.tls_context()
            )
            await wire._opened
    except TimeoutError:
        wire.abandon()
        raise BrokerUnreachable(
            address.host, address.port, f"no answer within {CONNECT_SECONDS:g} s"
        ) from None
    except OSError as error:
        wire.abandon()
        refused = error.errno == errno.ECONNREFUSED
        reason = "connection refused" if refused else error.strerror or str(error)
        raise BrokerUnreachable(address.host, address.port, reason) from error
    except BaseException:
        wire.abandon()
        raise
    return wire
