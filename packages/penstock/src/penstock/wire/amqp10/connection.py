"""A connection of AMQP 1.0, without sockets and clocks: bytes in, events out, frames to write.

Both ends are alike once the connection is open, so broker and client use the same class; they
differ in the handshake (`sasl.py`). `receive` takes the bytes of one socket read and calls the
owner's `Amqp10Events`; `out` collects what is to be written. Invalid input closes the connection
with the condition that the standard defines for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    FRAME_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    ConnectionFault,
    DecodeError,
    SessionFault,
)
from penstock.wire.amqp10.frames import (
    AMQP_FRAME,
    HEARTBEAT_FRAME,
    MIN_MAX_FRAME_SIZE,
    Amqp10FrameReader,
)
from penstock.wire.amqp10.performatives import (
    PERFORMATIVES,
    Amqp10Error,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    decode_performative,
    encode_performative_frame,
)
from penstock.wire.amqp10.session import Amqp10Session
from penstock.wire.amqp10.transfers import DISPOSITION, FLOW, TRANSFER

if TYPE_CHECKING:
    from penstock.wire.amqp10.links import (
        IncomingDelivery,
        LinkEndpoint,
        OutgoingDelivery,
        ReceiverLink,
        SenderLink,
    )
    from penstock.wire.amqp10.performatives import Open


#: The largest frame before the peer is authenticated and has sent its open.
PRE_OPEN_MAX_FRAME_SIZE: Final = 8 * 1024

_SYMBOLIC_DESCRIPTORS: Final = {
    "amqp:flow:list": FLOW,
    "amqp:transfer:list": TRANSFER,
    "amqp:disposition:list": DISPOSITION,
}


class OpeningHandler(Protocol):
    """The handshake before the open: protocol headers and SASL."""

    def on_header(self, header: bytes) -> None: ...

    def on_sasl(self, data: bytes, at: int, stop: int) -> None: ...


class Amqp10Connection:
    __slots__ = (
        "_channels",
        "_remote_channels",
        "channel_max",
        "closed",
        "container_id",
        "events",
        "finished",
        "frame_max",
        "opened",
        "opening",
        "out",
        "out_bytes",
        "reader",
        "remote",
        "remote_frame_max",
    )

    def __init__(
        self, events: Amqp10Events, container_id: str, *, frame_max: int, channel_max: int
    ) -> None:
        self.events = events
        self.container_id = container_id
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.reader = Amqp10FrameReader(self, min(PRE_OPEN_MAX_FRAME_SIZE, frame_max))
        self.opening: OpeningHandler | None = None  #: until the handshake is complete
        self.remote: Open | None = None  #: the peer's open
        self.remote_frame_max = MIN_MAX_FRAME_SIZE
        self.opened = False  #: by us
        self.closed = False  #: by us
        self.finished = False  #: nothing more is sent or received: the socket can be closed
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0  #: bytes of payload in `out`
        self._channels: dict[int, Amqp10Session] = {}
        self._remote_channels: dict[int, Amqp10Session] = {}

    # Bytes.

    def receive(self, data: bytes) -> None:
        if self.finished:
            return
        try:
            self.reader.feed(data)
        except ConnectionFault as fault:
            self.fail(fault)
        except DecodeError as error:
            self.fail(ConnectionFault(DECODE_ERROR, str(error)))

    def write(self, frame: bytes) -> None:
        if not self.out:
            self.events.on_output()
        self.out.append(frame)

    def write_transfer(self, head: bytes, payload: bytes | memoryview) -> None:
        if not self.out:
            self.events.on_output()
        self.out += (head, payload)
        self.out_bytes += len(payload)

    def write_transfers(self, transfers: list[bytes]) -> None:
        """Prefixes and payloads, in turn."""
        if not self.out:
            self.events.on_output()
        self.out += transfers
        self.out_bytes += sum(map(len, transfers))

    def write_checked(self, frame: bytes) -> None:
        """Write a frame that may exceed the frame size of the peer."""
        if len(frame) > self.remote_frame_max and self.remote is not None:
            raise ConnectionFault(
                FRAME_TOO_SMALL, f"frame of {len(frame)} bytes exceeds {self.remote_frame_max}"
            )
        self.write(frame)

    def heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    # Open and close.

    def open(self, **fields: Any) -> None:
        """Send an open; `fields` are further fields of `Open`."""
        self.opened = True
        self.write(
            encode_performative_frame(
                0,
                Open(
                    self.container_id,
                    max_frame_size=self.frame_max,
                    channel_max=self.channel_max,
                    **fields,
                ),
            )
        )

    def close(self, error: Amqp10Error | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        if self.opening is not None:  # no close can be sent during the handshake
            self.finish()
            return
        if not self.opened:
            self.open()
        self.write(encode_performative_frame(0, Close(error)))

    def fail(self, fault: ConnectionFault) -> None:
        """Close with an error."""
        if not self.closed:
            error = Amqp10Error(fault.condition, fault.description or None)
            self.close(error)
            self.events.on_close(error)
        if fault.condition in (FRAMING_ERROR, DECODE_ERROR):
            self.finish()  # the bytes that follow cannot be read

    def finish(self) -> None:
        self.finished = True
        self.reader.held = True
        self.events.on_output()

    def lose(self) -> None:
        """Release everything, because the socket is closed."""
        self.finished = True
        self.opening = None
        self.out.clear()
        for session in {*self._channels.values(), *self._remote_channels.values()}:
            session.lose()
        self._channels.clear()
        self._remote_channels.clear()
        del self.events, self.reader

    # Sessions.

    def session(self) -> Amqp10Session:
        """A session of ours, to be begun."""
        session = Amqp10Session(self, self._new_channel())
        self._channels[session.channel] = session
        return session

    @property
    def sessions(self) -> list[Amqp10Session]:
        return list(self._channels.values())

    def _new_channel(self) -> int:
        channels = self._channels
        channel = len(channels)
        if channel in channels:  # a lower one may be free
            channel = next(free for free in range(channel) if free not in channels)
        most = min(self.channel_max, self.remote.channel_max if self.remote else self.channel_max)
        if channel > most:
            raise ConnectionFault(LIMIT_EXCEEDED, f"at most {most + 1} sessions can be begun")
        return channel

    def release_channel(self, session: Amqp10Session) -> None:
        """We have ended a session. The peer's channel is in use until the peer has, too."""
        if self._channels.get(session.channel) is session:
            del self._channels[session.channel]

    # Frames.

    def on_header(self, header: bytes) -> None:
        if self.opening is None:
            raise ConnectionFault(FRAMING_ERROR, "protocol header after the handshake")
        self.opening.on_header(header)

    def on_frame(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> None:
        if kind != AMQP_FRAME or self.opening is not None:
            self._on_other(kind, data, at, stop)
            return
        if stop - at < 4:
            if at == stop:
                return
            raise DecodeError("frame without a performative")
        if data[at] == 0 and data[at + 1] == 0x53:
            code = data[at + 2]
            fields = at + 3
        else:
            code, fields = self._long_descriptor(data, at, stop)
        if self.closed:
            if code == 0x18:
                self.finish()
            return
        session = self._remote_channels.get(channel)
        if session is None:
            if code in (TRANSFER, FLOW, DISPOSITION):
                raise ConnectionFault(NOT_ALLOWED, f"no session on channel {channel}")
            self._on_connection_performative(channel, data, at, stop)
        elif session.ended:
            if code == 0x17:
                del self._remote_channels[channel]
            elif code == 0x18:
                self._on_connection_performative(channel, data, at, stop)
        else:
            try:
                if code == TRANSFER:
                    session.on_transfer(data, fields, stop)
                elif code == DISPOSITION:
                    session.on_disposition(data, fields, stop)
                elif code == FLOW:
                    session.on_flow(data, fields, stop)
                else:
                    self._on_session_performative(session, channel, data, at, stop)
            except SessionFault as fault:
                self._end(session, fault)

    def _on_other(self, kind: int, data: bytes, at: int, stop: int) -> None:
        if kind > 1:
            raise ConnectionFault(FRAMING_ERROR, f"unknown frame type {kind}")
        if self.opening is None or kind == AMQP_FRAME:
            raise ConnectionFault(FRAMING_ERROR, f"unexpected frame of type {kind}")
        if at < stop:
            self.opening.on_sasl(data, at, stop)

    def _long_descriptor(self, data: bytes, at: int, stop: int) -> tuple[int, int]:
        """A descriptor that is a symbol, or a number not in its smallest encoding."""
        if data[at]:
            raise DecodeError("frame without a performative")
        descriptor, fields = decode(data, at + 1, stop)
        if isinstance(descriptor, str):
            composite = PERFORMATIVES.find(descriptor)
            code = _SYMBOLIC_DESCRIPTORS.get(descriptor, 0) if composite is None else composite.code
            return code, fields
        return (int(descriptor), fields) if isinstance(descriptor, int) else (0, fields)

    def _on_connection_performative(self, channel: int, data: bytes, at: int, stop: int) -> None:
        """Handle a performative on a channel without a session."""
        performative = decode_performative(PERFORMATIVES, data, at, stop)
        if isinstance(performative, Open):
            self._on_open(performative)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        else:
            raise ConnectionFault(NOT_ALLOWED, f"no session on channel {channel}")

    def _on_session_performative(
        self, session: Amqp10Session, channel: int, data: bytes, at: int, stop: int
    ) -> None:
        performative = decode_performative(PERFORMATIVES, data, at, stop)
        match performative:
            case Attach():
                session.on_attach(performative)
            case Detach():
                session.on_detach(performative)
            case End():
                del self._remote_channels[channel]
                self.events.on_end(session, performative.error)
                session.end()
            case Close():
                self._on_close(performative)
            case Open():
                self._on_open(performative)
            case _:
                raise ConnectionFault(ILLEGAL_STATE, f"channel {channel} already has a session")

    def _on_open(self, remote: Open) -> None:
        if self.remote is not None:
            raise ConnectionFault(ILLEGAL_STATE, "the connection is already open")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ConnectionFault(
                FRAME_TOO_SMALL, f"max-frame-size is less than {MIN_MAX_FRAME_SIZE}"
            )
        self.remote = remote
        self.remote_frame_max = min(remote.max_frame_size, self.frame_max)
        self.reader.frame_max = self.frame_max
        self.events.on_open(remote)

    def _on_close(self, close: Close) -> None:
        self.close()
        self.events.on_close(close.error)
        self.finish()

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if self.remote is None:
            raise ConnectionFault(ILLEGAL_STATE, "begin before open")
        if channel > self.channel_max:
            raise ConnectionFault(FRAMING_ERROR, f"channel {channel} exceeds {self.channel_max}")
        if begin.remote_channel is None:
            session = self.session()
        else:
            mine = self._channels.get(begin.remote_channel)
            if mine is None or mine.remote_channel >= 0:
                raise ConnectionFault(
                    NOT_ALLOWED, f"begin answers none on channel {begin.remote_channel}"
                )
            session = mine
        self._remote_channels[channel] = session
        session.on_begin(channel, begin)
        if not session.begun:
            session.begin()
        self.events.on_begin(session)

    def _end(self, session: Amqp10Session, fault: SessionFault) -> None:
        error = Amqp10Error(fault.condition, fault.description or None)
        self.events.on_end(session, error)
        session.end(error)


class Amqp10Events(Protocol):
    """Calls of a connection to its owner, the broker's terminal or a client.

    They are made while bytes are read, in the order of the frames. An owner that raises an
    `Amqp10Fault` ends the link, session or connection of the fault.
    """

    def on_output(self) -> None:
        """The connection's `out` is no longer empty."""

    def on_open(self, opened: Open) -> None:
        """The peer has sent its open: answer by `open` unless ours is sent."""

    def on_close(self, error: Amqp10Error | None) -> None:
        """The connection ends; our close is written."""

    def on_begin(self, session: Amqp10Session) -> None:
        """A session is begun on both sides, by the peer or by us."""

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        """A session and its links end, by the peer or by a fault."""

    def on_attach(self, link: LinkEndpoint) -> None:
        """The peer requests a link, to be accepted or refused, or answers ours (`attached`)."""

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        """A link ends, by the peer or by a fault."""

    def on_flow(self, link: SenderLink) -> None:
        """A sender has a new credit, or is to use it now (`draining`)."""

    def on_window_open(self, session: Amqp10Session) -> None:
        """The outgoing window was full and is not any more."""

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """A piece of a delivery; the last, unless there is more."""

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """The sender has aborted an incomplete delivery."""

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        """The peer has settled deliveries of ours or sent their outcome (`state`)."""

    def on_settled(self, delivery: IncomingDelivery) -> None:
        """The peer has settled a delivery that it sent."""

    def on_drained(self, link: ReceiverLink) -> None:
        """A sender has sent its delivery count; it may have returned credit."""
