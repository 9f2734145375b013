"""Channel 0, the connection's own, as a client speaks it: opening, blocking, closing.

Methods in, bytes to answer with out. The stages follow one another as in the table; what a broker
says out of turn is an error. Sockets, and how long one waits, are the client's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.core.errors import (
    AuthenticationFailed,
    CommandInvalid,
    NotAllowed,
    NotFound,
    PenstockError,
)
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import FRAME_MAX, encode_pamqp_method
from penstock.wire.amqp091.errors import AmqpConnectionLost, error_from_close

CHANNEL_MAX: Final = 0xFFFF
_ACCESS_REFUSED: Final = 403
_REPLY_SUCCESS: Final = 200
_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class ClientConnectionState(Enum):
    GREETING = auto()  #: we have said which protocol we speak
    LOGIN = auto()  #: we have said who we are
    TUNED = auto()  #: the limits are agreed, the virtual host is asked for
    OPEN = auto()
    CLOSING = auto()  #: we have said goodbye
    CLOSED = auto()  #: by either side; `ended` says why


#: What a broker has to say to get from one stage to the next.
_EXPECTED_STATE: Final[dict[type[Method], ClientConnectionState]] = {
    commands.Connection.Start: ClientConnectionState.GREETING,
    commands.Connection.Tune: ClientConnectionState.LOGIN,
    commands.Connection.OpenOk: ClientConnectionState.TUNED,
}
_OPENING_STATES: Final = frozenset(_EXPECTED_STATE.values())


class ChannelZero:
    """The client's side of one connection."""

    def __init__(self, address: AmqpAddress, purpose: str, *, heartbeat: int | None = None) -> None:
        """`purpose` is the connection's name at the broker; a heartbeat of 0 is none."""
        self.stage = ClientConnectionState.GREETING
        self.ended: PenstockError | None = None  #: why, once it is closed
        self.blocked = False  #: the broker has asked senders to wait
        self.greeting: dict[str, Any] = {}  #: what the broker says of itself
        self.frame_max = FRAME_MAX
        self.channel_max = CHANNEL_MAX
        self.heartbeat = address.heartbeat if heartbeat is None else heartbeat  #: as agreed
        self._address = address
        self._purpose = purpose

    def hear(self, method: Method) -> bytes:
        """Take in what came on channel 0; what is to be answered."""
        expected = _EXPECTED_STATE.get(type(method))
        if expected not in (None, self.stage):
            raise CommandInvalid(f"{self._address} said {method.name} out of turn")
        match method:
            case commands.Connection.Start():
                return self._log_in(method)
            case commands.Connection.Tune():
                return self._tune(method)
            case commands.Connection.OpenOk():
                self.stage = ClientConnectionState.OPEN
            case commands.Connection.Blocked() | commands.Connection.Unblocked():
                self.blocked = isinstance(method, commands.Connection.Blocked)
            case commands.Connection.Close():
                self.ended = self._refusal(method.reply_code or 0, method.reply_text or "")
                self.stage = ClientConnectionState.CLOSED
                return encode_pamqp_method(0, commands.Connection.CloseOk())
            case commands.Connection.CloseOk():
                self.ended = AmqpConnectionLost(f"left {self._address}")
                self.stage = ClientConnectionState.CLOSED
        return b""

    def leave(self) -> bytes:
        """Say goodbye."""
        self.stage = ClientConnectionState.CLOSING
        return encode_pamqp_method(0, commands.Connection.Close(_REPLY_SUCCESS, "", 0, 0))

    def broken(self, reason: str = "") -> PenstockError:
        """What it means that the connection ended, with no word of the broker's about it."""
        words = f"{self._address} has closed the connection" + (f": {reason}" if reason else "")
        told = self.greeting.get("capabilities") or {}
        if self.stage is ClientConnectionState.LOGIN and not told.get(
            "authentication_failure_close"
        ):
            return self._stranger()  # the standard has no other word for it
        return AmqpConnectionLost(words)

    def _log_in(self, start: commands.Connection.Start) -> bytes:
        self.greeting = dict(start.server_properties or {})
        self.stage = ClientConnectionState.LOGIN
        properties: dict[str, Any] = {
            "product": "Penstock",
            "connection_name": self._purpose,
            "capabilities": dict(_CAPABILITIES),
        }
        answer = f"\0{self._address.user}\0{self._address.password}"
        login = commands.Connection.StartOk(properties, "PLAIN", answer, "en_US")
        return encode_pamqp_method(0, login)

    def _tune(self, tune: commands.Connection.Tune) -> bytes:
        self.stage = ClientConnectionState.TUNED
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self.channel_max = tune.channel_max or CHANNEL_MAX
        if self.heartbeat and tune.heartbeat:
            self.heartbeat = min(self.heartbeat, tune.heartbeat)
        tuned = commands.Connection.TuneOk(self.channel_max, self.frame_max, self.heartbeat)
        wanted = commands.Connection.Open(self._address.vhost)
        return encode_pamqp_method(0, tuned) + encode_pamqp_method(0, wanted)

    def _refusal(self, code: int, text: str) -> PenstockError:
        error = error_from_close(code, text, self._address)
        if self.stage not in _OPENING_STATES:
            return error
        if code == _ACCESS_REFUSED:
            return self._stranger()
        if isinstance(error, NotAllowed | NotFound):
            vhost = self._address.vhost
            return NotFound(f"{self._address} refused the virtual host {vhost!r}: {text}")
        return error

    def _stranger(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self._address} does not let {self._address.user!r} in: "
            "wrong name or password, or a user that may not connect from here"
        )
