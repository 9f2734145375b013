"""A connection of AMQP 1.0: bytes in, events out, frames to write; no sockets and no clocks.

Both ends of a connection are alike once it is open, so the broker's terminal and the client stand
on the same one; they differ in how they come to be open (`sasl.py`). `receive` takes what a
read brought and tells the owner what it means (`events.py`); what is to be written gathers in
`out`. Whatever bytes come, the peer is told the condition that the standard has for them, and
nobody else notices.
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


#: What a peer may send at once before it has said who it is.
PRE_OPEN_MAX_FRAME_SIZE: Final = 8 * 1024

#: The performatives of every message by the names nobody uses.
_SYMBOLIC_DESCRIPTORS: Final = {
    "amqp:flow:list": FLOW,
    "amqp:transfer:list": TRANSFER,
    "amqp:disposition:list": DISPOSITION,
}


class OpeningHandler(Protocol):
    """What comes before the first performative: protocol headers and SASL."""

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
        self.opening: OpeningHandler | None = None  #: until headers, and who it is, are settled
        self.remote: Open | None = None  #: what the peer has said of itself
        self.remote_frame_max = MIN_MAX_FRAME_SIZE
        self.opened = False  #: by us
        self.closed = False  #: by us
        self.finished = False  #: nothing is to be said or heard any more: the socket can go
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0  #: payload among it
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

    def write_checked(self, frame: bytes) -> None:
        """A frame that may turn out larger than the peer takes."""
        if len(frame) > self.remote_frame_max and self.remote is not None:
            raise ConnectionFault(
                FRAME_TOO_SMALL, f"{len(frame)} bytes do not fit frames of {self.remote_frame_max}"
            )
        self.write(frame)

    def heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    # Open and close.

    def open(self, **said: Any) -> None:
        """Introduce ourselves; the fields of `Open` beyond the ones every open has."""
        self.opened = True
        self.write(
            encode_performative_frame(
                0,
                Open(
                    self.container_id,
                    max_frame_size=self.frame_max,
                    channel_max=self.channel_max,
                    **said,
                ),
            )
        )

    def close(self, error: Amqp10Error | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        if self.opening is not None:  # there is nothing yet that could be closed politely
            self.finish()
            return
        if not self.opened:
            self.open()
        self.write(encode_performative_frame(0, Close(error)))

    def fail(self, fault: ConnectionFault) -> None:
        """Close, and say why."""
        if not self.closed:
            error = Amqp10Error(fault.condition, fault.description or None)
            self.close(error)
            self.events.on_close(error)
        if fault.condition in (FRAMING_ERROR, DECODE_ERROR):
            self.finish()  # what follows cannot be told apart any more

    def finish(self) -> None:
        self.finished = True
        self.reader.held = True
        self.events.on_output()

    def lose(self) -> None:
        """The socket is gone: nobody is owed anything, and what is here refers to nothing more."""
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
        """A session of ours, yet to be begun."""
        session = Amqp10Session(self, self._new_channel())
        self._channels[session.channel] = session
        return session

    @property
    def sessions(self) -> list[Amqp10Session]:
        return list(self._channels.values())

    def _new_channel(self) -> int:
        channels = self._channels
        channel = len(channels)
        if channel in channels:  # some have ended
            channel = next(free for free in range(channel) if free not in channels)
        most = min(self.channel_max, self.remote.channel_max if self.remote else self.channel_max)
        if channel > most:
            raise ConnectionFault(LIMIT_EXCEEDED, f"no more than {most + 1} sessions can be begun")
        return channel

    def release_channel(self, session: Amqp10Session) -> None:
        """We have ended it. The peer's channel stays its own until the peer has, too."""
        if self._channels.get(session.channel) is session:
            del self._channels[session.channel]

    # Frames.

    def on_header(self, header: bytes) -> None:
        if self.opening is None:
            raise ConnectionFault(FRAMING_ERROR, "a protocol header on an open connection")
        self.opening.on_header(header)

    def on_frame(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> None:
        if kind != AMQP_FRAME or self.opening is not None:
            self._on_other(kind, data, at, stop)
            return
        if stop - at < 4:
            if at == stop:
                return
            raise DecodeError("a frame's body is no performative")
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
                raise ConnectionFault(NOT_ALLOWED, f"there is no session on channel {channel}")
            self._outside(channel, data, at, stop)
        elif session.ended:
            if code == 0x17:
                del self._remote_channels[channel]
            elif code == 0x18:
                self._outside(channel, data, at, stop)
        else:
            try:
                if code == TRANSFER:
                    session.on_transfer(data, fields, stop)
                elif code == DISPOSITION:
                    session.on_disposition(data, fields, stop)
                elif code == FLOW:
                    session.on_flow(data, fields, stop)
                else:
                    self._within(session, channel, data, at, stop)
            except SessionFault as fault:
                self._end(session, fault)

    def _on_other(self, kind: int, data: bytes, at: int, stop: int) -> None:
        if kind > 1:
            raise ConnectionFault(FRAMING_ERROR, f"frames of type {kind} are unknown")
        if self.opening is None or kind == AMQP_FRAME:
            raise ConnectionFault(FRAMING_ERROR, f"a frame of type {kind} at the wrong time")
        if at < stop:
            self.opening.on_sasl(data, at, stop)

    def _long_descriptor(self, data: bytes, at: int, stop: int) -> tuple[int, int]:
        """A descriptor that is a symbol, or a number in more bytes than it needs."""
        if data[at]:
            raise DecodeError("a frame's body is no performative")
        descriptor, fields = decode(data, at + 1, stop)
        if isinstance(descriptor, str):
            composite = PERFORMATIVES.find(descriptor)
            code = _SYMBOLIC_DESCRIPTORS.get(descriptor, 0) if composite is None else composite.code
            return code, fields
        return (int(descriptor), fields) if isinstance(descriptor, int) else (0, fields)

    def _outside(self, channel: int, data: bytes, at: int, stop: int) -> None:
        """A performative that belongs to no session."""
        performative = decode_performative(PERFORMATIVES, data, at, stop)
        if isinstance(performative, Open):
            self._on_open(performative)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        else:
            raise ConnectionFault(NOT_ALLOWED, f"there is no session on channel {channel}")

    def _within(
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
                raise ConnectionFault(ILLEGAL_STATE, f"channel {channel} has a session already")

    def _on_open(self, remote: Open) -> None:
        if self.remote is not None:
            raise ConnectionFault(ILLEGAL_STATE, "the connection is open already")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ConnectionFault(
                FRAME_TOO_SMALL, f"frames of {MIN_MAX_FRAME_SIZE} bytes are the least"
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
            raise ConnectionFault(ILLEGAL_STATE, "a session before the connection is open")
        if channel > self.channel_max:
            raise ConnectionFault(FRAMING_ERROR, f"channel {channel} is over {self.channel_max}")
        if begin.remote_channel is None:
            session = self.session()
        else:
            mine = self._channels.get(begin.remote_channel)
            if mine is None or mine.remote_channel >= 0:
                raise ConnectionFault(NOT_ALLOWED, f"no begin on channel {begin.remote_channel}")
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


# What a connection tells its owner, be it a terminal of the broker or a client.
#
# Every event comes while bytes are being read, in the order of the frames, and returns at once. An
# owner that raises a `Fault` ends the link, session or connection that the fault belongs to.


class Amqp10Events(Protocol):
    def on_output(self) -> None:
        """There is something in the connection's `out`, and there was nothing before."""

    def on_open(self, opened: Open) -> None:
        """The peer has introduced itself: answer by `Connection.open` unless we were first."""

    def on_close(self, error: Amqp10Error | None) -> None:
        """The peer is done; our close is on its way too."""

    def on_begin(self, session: Amqp10Session) -> None:
        """A session is there on both sides: the peer's, which has been answered, or ours."""

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        """A session ends, and all that was on it: the peer or a fault has ended it."""

    def on_attach(self, link: LinkEndpoint) -> None:
        """The peer wants a link, to be accepted or refused; or has answered ours (`attached`)."""

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        """A link ends: the peer has taken it off, or a fault has."""

    def on_flow(self, link: SenderLink) -> None:
        """The peer has given a sender credit, or asks it to use it up (`draining`)."""

    def on_room(self, session: Amqp10Session) -> None:
        """What waited for the session's window has left, and there is room for more."""

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """A piece of a delivery; the last, unless there is more."""

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """The rest of a delivery will not come, and it is to be forgotten."""

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """The peer has settled a delivery of ours, or said what became of it (`state`)."""

    def on_settled(self, delivery: IncomingDelivery) -> None:
        """The peer has settled a delivery that it sent: it waits for no more answer."""

    def on_drained(self, link: ReceiverLink) -> None:
        """A sender has said how far it is; credit that it was to drain may be gone."""
